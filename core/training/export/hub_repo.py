"""Target hub: the model with its card in a repository, or the folder that would go there."""

from __future__ import annotations

from core.training.export import card
from core.training.export.gguf_file import write_gguf
from core.training.export.merged_folder import make_merged
from core.training.export.peft_folder import make_adapter
from core.training.export.verify import failed
from core.training.export.work import Work
from data.errors import refuse


def make_hub(work: Work) -> list[str]:
    """Make the content, card and curves, verify them, and push them where a repository is named."""
    content = work.spec.content
    if content == "gguf":
        verified = write_gguf(work, work.spec.quant)
    else:
        verified = make_adapter(work) if content == "adapter" else make_merged(work)
    card.write_text(work, work.folder, curves=True)
    verified += card.verify_card(work.folder)
    if work.spec.repo is None:
        work.notes.append("a dry run: nothing was uploaded, this folder is what would be")
        return verified
    work.phase(f"uploading to {work.spec.repo}", 0.92)
    return [*verified, _push(work, work.spec.repo)]


def _push(work: Work, repo: str) -> str:
    """Upload the folder and compare the hub's list of files with it. Raises FactoryError in the hub's words."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()  # the token comes from the environment
    try:
        api.create_repo(repo, private=work.spec.private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo, folder_path=work.folder, commit_message="Model of a Factory run"
        )
        info = api.model_info(repo, revision=commit.oid, files_metadata=True)
    except (HfHubHTTPError, OSError) as problem:
        first = next(
            (line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__
        )
        raise refuse(
            "hub_push_failed",
            f"The hub did not take the push to {repo!r} ({first[:200]}); check the name, the network and the rights of "
            "the token in HF_TOKEN.",
            field="repo",
            value=repo,
        ) from problem
    sizes = {one.rfilename: one.size for one in info.siblings or []}
    for path in sorted(work.folder.rglob("*")):
        name = path.relative_to(work.folder).as_posix()
        if path.is_file() and sizes.get(name) != path.stat().st_size:
            raise failed(f"{name} is not whole on the hub ({sizes.get(name)} bytes)", file=name)
    work.notes.append(f"pushed to {repo}")
    return f"{len(sizes)} files on the hub with the sizes they have here"
