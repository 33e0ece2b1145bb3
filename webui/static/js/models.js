/** Fill the page. */
export function start(root) {}
