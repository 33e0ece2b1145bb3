"""The look of Gradio's own parts: plain surfaces, thin borders, our colours. Everything else is static/css."""

from __future__ import annotations

from typing import Any

import gradio as gr

SANS = (
    *("Inter", "ui-sans-serif", "system-ui", "-apple-system", "Segoe UI"),
    *("Noto Sans", "Noto Sans CJK SC", "sans-serif"),
)
MONO = ("JetBrains Mono", "ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
"""Plain names: nothing is fetched, the first font that is installed is taken."""

# Gradio's name for a colour -> what it is here. The values are variables of static/css/base.css, which know
# light and dark, so both modes of Gradio take the same one.
COLOURS = {
    "body_background_fill": "var(--paper)",
    "body_text_color": "var(--ink)",
    "body_text_color_subdued": "var(--muted)",
    "background_fill_primary": "var(--card)",
    "background_fill_secondary": "var(--paper)",
    "block_background_fill": "transparent",
    "block_label_background_fill": "transparent",
    "block_label_text_color": "var(--ink)",
    "block_title_text_color": "var(--ink)",
    "block_info_text_color": "var(--muted)",
    "border_color_primary": "var(--line)",
    "border_color_accent": "var(--accent)",
    "color_accent_soft": "var(--accent-soft)",
    "input_background_fill": "var(--field)",
    "input_background_fill_focus": "var(--field)",
    "input_border_color": "var(--field-line)",
    "input_border_color_focus": "var(--accent)",
    "input_placeholder_color": "var(--faint)",
    "input_shadow_focus": "0 0 0 3px var(--ring)",
    "checkbox_background_color": "var(--field)",
    "checkbox_background_color_selected": "var(--accent-fill)",
    "checkbox_border_color": "var(--field-line)",
    "checkbox_border_color_hover": "var(--accent)",
    "checkbox_border_color_selected": "var(--accent-fill)",
    "checkbox_label_background_fill": "var(--field)",
    "checkbox_label_background_fill_hover": "var(--hover)",
    "checkbox_label_background_fill_selected": "var(--accent-soft)",
    "checkbox_label_border_color": "var(--field-line)",
    "checkbox_label_border_color_selected": "var(--accent)",
    "checkbox_label_text_color": "var(--ink)",
    "checkbox_label_text_color_selected": "var(--ink)",
    "button_primary_background_fill": "var(--accent-fill)",
    "button_primary_background_fill_hover": "var(--accent-deep)",
    "button_primary_border_color": "var(--accent-fill)",
    "button_primary_text_color": "#fff",
    "button_secondary_background_fill": "var(--card)",
    "button_secondary_background_fill_hover": "var(--hover)",
    "button_secondary_border_color": "var(--field-line)",
    "button_secondary_text_color": "var(--ink)",
    "table_border_color": "var(--line)",
    "link_text_color": "var(--accent-text)",
}
SIZES = {
    "block_border_width": "0px",
    "block_shadow": "none",
    "block_padding": "0px",
    "block_title_text_size": "13px",
    "block_title_text_weight": "550",
    "block_label_text_size": "13px",
    "block_info_text_size": "12px",
    "input_border_width": "1px",
    "input_shadow": "none",
    "input_padding": "7px 10px",
    "input_radius": "8px",
    "input_text_size": "14px",
    "checkbox_label_border_width": "1px",
    "checkbox_label_padding": "8px 12px",
    "checkbox_label_text_size": "13.5px",
    "checkbox_label_shadow": "none",
    "checkbox_label_gap": "8px",
    "button_border_width": "1px",
    "button_large_padding": "9px 16px",
    "button_large_text_size": "14px",
    "button_large_text_weight": "600",
    "button_large_radius": "8px",
    "button_small_padding": "5px 10px",
    "button_small_text_size": "13px",
    "button_small_radius": "7px",
    "button_transform_hover": "none",
    "button_transform_active": "none",
}


def theme() -> Any:
    """Gradio's base theme in our colours."""
    base = gr.themes.Base(
        primary_hue=gr.themes.colors.indigo,
        secondary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=gr.themes.sizes.text_md,
        font=list(SANS),
        font_mono=list(MONO),
    )
    known = base.set.__code__.co_varnames
    dark = {f"{name}_dark": value for name, value in COLOURS.items() if f"{name}_dark" in known}
    return base.set(**SIZES, **COLOURS, **dark)
