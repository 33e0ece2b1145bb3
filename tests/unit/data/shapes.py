# ruff: noqa: E501 - a table of data
"""One small file per shape of data that people bring, in our own words, and the first row that should come out.

Each shape is (file name, content, stage, first row or None for a refusal). Content is a list of JSON rows (written as
JSON Lines), any other JSON value wrapped in Whole, text, or a function that writes the file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Whole:
    """A JSON document that is no list of lines."""

    value: Any


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def chat(*turns: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(turns)}


def human(text: str) -> dict[str, Any]:
    return {"from": "human", "value": text}


def gpt(text: str) -> dict[str, Any]:
    return {"from": "gpt", "value": text}


WIND = {"name": "wind_at", "description": "wind speed", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "wind_at", "arguments": '{"at": "quay"}'}}


def text_folder(path: Path) -> None:
    (path / "below").mkdir(parents=True)
    (path / "one.md").write_text("# Ropes\n\nNever cut what you can untie.\n", encoding="utf-8")
    (path / "below" / "two.txt").write_bytes("Zwei Zeilen\r\nmit Öl\r\n".encode())
    (path / ".hidden").write_bytes(b"\x00\x00")
    (path / "photo.png").write_bytes(b"\x89PNG\r\n")


def parquet(columns: dict[str, Any], types: dict[str, Any] | None = None) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        schema = pyarrow.schema(types(pyarrow)) if types else None
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), path)

    return write


def _turn_structs(pa: Any) -> Any:
    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    return {"conversation": pa.list_(turn), "day": pa.string()}


def workbook(path: Path) -> None:
    """Two sheets: a note, and a table with a blank after a header, a number, an empty column and an empty last row."""
    rows = [["Question ", "Answer", ""], ["Which berth?", "Seven."], ["Code?", 815], []]
    cells = []
    for number, row in enumerate(rows, 1):
        made = "".join(
            f'<c r="{"ABC"[at]}{number}"><v>{cell}</v></c>'
            if isinstance(cell, int)
            else f'<c r="{"ABC"[at]}{number}" t="inlineStr"><is><t xml:space="preserve">{cell}</t></is></c>'
            for at, cell in enumerate(row)
        )
        cells.append(f'<row r="{number}">{made}</row>')
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    note = '<row r="1"><c r="A1" t="inlineStr"><is><t>About this file</t></is></c></row>'
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
            f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}.worksheet+xml"/>'
            f'<Override PartName="/xl/worksheets/sheet2.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        )
        book.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{relations}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        book.writestr(
            "xl/workbook.xml",
            f'<workbook {main} xmlns:r="{relations}"><sheets><sheet name="Read me" sheetId="1" r:id="r1"/>'
            '<sheet name="FAQ" sheetId="2" r:id="r2"/></sheets></workbook>',
        )
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{package}/relationships">'
            + "".join(
                f'<Relationship Id="r{n}" Type="{relations}/worksheet" Target="worksheets/sheet{n}.xml"/>'
                for n in (1, 2)
            )
            + "</Relationships>",
        )
        for number, body in ((1, note), (2, "".join(cells))):
            sheet = f"<worksheet {main}><sheetData>{body}</sheetData></worksheet>"
            book.writestr(f"xl/worksheets/sheet{number}.xml", sheet)


HH = "\n\nHuman: Is ice slippery?\n\nAssistant: Yes.\n\nHuman: Why?\n\nAssistant: "
TREE = {
    "text": "How do I coil a rope?",
    "role": "prompter",
    "replies": [
        {"text": "Clockwise, in even loops.", "role": "assistant", "rank": 0, "replies": []},
        {"text": "Throw it down.", "role": "assistant", "rank": 1, "replies": []},
    ],
}

SHAPES: dict[str, tuple[str, Any, str, Any]] = {
    "alpaca": (
        "a.json",
        Whole([{"instruction": "Name a knot.", "input": "", "output": "Bowline."}]),
        "sft",
        chat(user("Name a knot."), assistant("Bowline.")),
    ),
    "alpaca_history_system": (
        "a.jsonl",
        [{"system": "Be short.", "instruction": "And now?", "input": "", "output": "Low.", "history": [["Tide?", "High."]]}],
        "sft",
        chat(system("Be short."), user("Tide?"), assistant("High."), user("And now?"), assistant("Low.")),
    ),
    "dolly": (
        "a.jsonl",
        [{"instruction": "How deep?", "context": "The bay is 9 m deep.", "response": "9 m.", "category": "closed_qa"}],
        "sft",
        chat(user("The bay is 9 m deep.\n\nHow deep?"), assistant("9 m.")),
    ),
    "prompt_completion": (
        "a.jsonl",
        [{"prompt": "In French: thanks", "completion": "merci"}],
        "sft",
        {"prompt": "In French: thanks", "completion": "merci"},
    ),
    "prompt_completion_chat": (
        "a.jsonl",
        [{"prompt": [system("Brief."), user("Two?")], "completion": [assistant("2")]}],
        "sft",
        {"prompt": [system("Brief."), user("Two?")], "completion": [assistant("2")]},
    ),
    "question_answer_csv": (
        "a.csv",
        'Question,ANSWER\n"What is ""lee""?","The calm side, mostly."\n',
        "sft",
        chat(user('What is "lee"?'), assistant("The calm side, mostly.")),
    ),
    "sharegpt": (
        "a.json",
        Whole([{"id": 1, "conversations": [{"from": "system", "value": "S"}, human("Hi"), gpt("Ho")]}]),
        "sft",
        chat(system("S"), user("Hi"), assistant("Ho")),
    ),
    "sharegpt_tools": (
        "a.json",
        Whole(
            [
                {
                    "conversations": [
                        human("Wind?"),
                        {"from": "function_call", "value": '{"name": "wind_at", "arguments": {"at": "quay"}}'},
                        {"from": "observation", "value": '{"kn": 12}'},
                        gpt("12 knots."),
                    ],
                    "tools": json.dumps([WIND]),
                }
            ]
        ),
        "sft",
        {
            "messages": [
                user("Wind?"),
                {**assistant(""), "tool_calls": [{key: CALL[key] for key in ("type", "function")}]},
                {"role": "tool", "content": '{"kn": 12}'},
                assistant("12 knots."),
            ],
            "tools": [WIND],
        },
    ),
    "sharegpt_dialects": (
        "a.jsonl",
        [
            {"dialogue": [{"speaker": "User", "utterance": "up"}, {"speaker": "BOT", "utterance": "down"}]},
            {"items": [{"from": "USER", "value": "up"}, {"from": "ASSISTANT", "value": "down"}]},
        ],
        "sft",
        chat(user("up"), assistant("down")),
    ),
    "openai_messages": ("a.jsonl", [chat(user("Fact?"), assistant("Bees dance."))], "sft",
                        chat(user("Fact?"), assistant("Bees dance."))),
    "openai_tools": (
        "a.jsonl",
        [
            {
                "messages": [
                    user("Wind?"),
                    {"role": "assistant", "content": None, "tool_calls": [CALL]},
                    {"role": "tool", "tool_call_id": "c1", "content": "12 kn"},
                    assistant("12 knots."),
                ],
                "tools": [{"type": "function", "function": WIND}],
                "parallel_tool_calls": False,
            }
        ],
        "sft",
        {
            "messages": [
                user("Wind?"),
                {**assistant(""), "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "12 kn"},
                assistant("12 knots."),
            ],
            "tools": [{"type": "function", "function": WIND}],
        },
    ),
    "openai_content_parts": (
        "a.jsonl",
        [
            chat({"role": "user", "content": [{"type": "text", "text": "Dry"}, {"type": "text", "text": " dock?"}]}, assistant("No")),
            chat(user("plain"), assistant("text")),
        ],
        "sft",
        chat(user("Dry dock?"), assistant("No")),
    ),
    "multi_image_chat": (
        "a.jsonl",
        [{"messages": [user("<image>Which boat?"), assistant("The red one.")], "images": ["a.png"]}],
        "sft",
        None,
    ),
    "image_parts": (
        "a.jsonl",
        [chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, assistant("A boat."))],
        "sft",
        None,
    ),
    "capybara": (
        "a.jsonl",
        [{"source": "own", "conversation": [{"input": "Mast?", "output": "Tall."}, {"input": "Hull?", "output": "Wet."}]}],
        "sft",
        chat(user("Mast?"), assistant("Tall."), user("Hull?"), assistant("Wet.")),
    ),
    "turns_list": ("a.jsonl", [{"data": ["Ahoy", "Ahoy!"]}], "sft", chat(user("Ahoy"), assistant("Ahoy!"))),
    "reasoning_messages": (
        "a.jsonl",
        [chat(user("4*4?"), {"role": "assistant", "reasoning_content": "4*4 is 16.", "content": "16"})],
        "sft",
        chat(user("4*4?"), {"role": "assistant", "reasoning_content": "4*4 is 16.", "content": "16"}),
    ),
    "oasst_tree": (
        "a.jsonl",
        [{"message_tree_id": "t", "tree_state": "done", "prompt": TREE}],
        "dpo",
        {"prompt": "How do I coil a rope?", "chosen": "Clockwise, in even loops.", "rejected": "Throw it down."},
    ),
    "oasst_flat": (
        "a.csv",
        "message_id,parent_id,text,role,lang,rank\na,,Knots?,prompter,en,\nb,a,Many.,assistant,en,0\n"
        "c,a,No.,assistant,en,1\nd,b,One?,prompter,en,\ne,d,Bowline.,assistant,en,0\n",
        "sft",
        chat(user("Knots?"), assistant("Many."), user("One?"), assistant("Bowline.")),
    ),
    "h2o_chained": (
        "a.csv",
        "id,parent_id,instruction,output\n1,,Colour?,Red\n2,1,Lighter,Pink\n",
        "sft",
        chat(user("Colour?"), assistant("Red"), user("Lighter"), assistant("Pink")),
    ),
    "ultrafeedback_binarized": (
        "a.jsonl",
        [
            {
                "prompt": "Name a fish.",
                "prompt_id": "p",
                "chosen": [user("Name a fish."), assistant("Cod.")],
                "rejected": [user("Name a fish."), assistant("Fish.")],
                "messages": [user("Name a fish."), assistant("Cod.")],
                "score_chosen": 7.5,
                "score_rejected": 4.0,
            }
        ],
        "dpo",
        {"prompt": [user("Name a fish.")], "chosen": [assistant("Cod.")], "rejected": [assistant("Fish.")], "margin": 3.5},
    ),
    "preference_implicit_prompt": (
        "a.jsonl",
        [{"chosen": [user("Tea?"), assistant("Please.")], "rejected": [user("Tea?"), assistant("Ugh.")]}],
        "dpo",
        {"prompt": [user("Tea?")], "chosen": [assistant("Please.")], "rejected": [assistant("Ugh.")]},
    ),
    "preference_explicit_text": (
        "a.jsonl",
        [{"prompt": "Rhyme with tide.", "chosen": "Wide.", "rejected": "Sea."}],
        "dpo",
        {"prompt": "Rhyme with tide.", "chosen": "Wide.", "rejected": "Sea."},
    ),
    "preference_aliases": (
        "a.jsonl",
        [{"question": "Rhyme with tide.", "response_chosen": "Wide.", "response_rejected": "Sea."}],
        "dpo",
        {"prompt": "Rhyme with tide.", "chosen": "Wide.", "rejected": "Sea."},
    ),
    "sharegpt_dpo": (
        "a.json",
        Whole([{"conversations": [human("Hi"), gpt("Ho"), human("Pun?")], "chosen": gpt("Sea you."), "rejected": gpt("No.")}]),
        "dpo",
        {"prompt": [user("Hi"), assistant("Ho"), user("Pun?")], "chosen": [assistant("Sea you.")], "rejected": [assistant("No.")]},
    ),
    "hh_rlhf": (
        "a.jsonl",
        [{"chosen": HH + "It is wet.", "rejected": HH + "Dunno."}, {"chosen": HH + "So.", "rejected": HH}],
        "dpo",
        {
            "prompt": [user("Is ice slippery?"), assistant("Yes."), user("Why?")],
            "chosen": [assistant("It is wet.")],
            "rejected": [assistant("Dunno.")],
        },
    ),
    "stack_exchange_paired": (
        "a.jsonl",
        [{"qid": 1, "question": "Oil?", "date": "x", "metadata": ["m"], "response_j": "Linseed.", "response_k": "None."}],
        "dpo",
        {"prompt": "Oil?", "chosen": "Linseed.", "rejected": "None."},
    ),
    "webgpt_comparisons": (
        "a.jsonl",
        [
            {"question": {"full_text": "Why salt?"}, "answer_0": "No.", "score_0": -0.5, "answer_1": "Rivers.", "score_1": 1.0},
            {"question": {"full_text": "Why wet?"}, "answer_0": "A", "score_0": 0.0, "answer_1": "B", "score_1": 0.0},
        ],
        "dpo",
        {"prompt": "Why salt?", "chosen": "Rivers.", "rejected": "No.", "margin": 1.5},
    ),
    "nectar_ranked": (
        "a.jsonl",
        [
            {
                "prompt": "\n\nHuman: Sow when?\n\nAssistant: ",
                "answers": [
                    {"answer": "May.", "rank": 2.0},
                    {"answer": "Never.", "rank": 3.0},
                    {"answer": "April.", "rank": 1.0},
                ],
            }
        ],
        "dpo",
        {"prompt": [user("Sow when?")], "chosen": [assistant("April.")], "rejected": [assistant("Never.")]},
    ),
    "ultrafeedback_scored": (
        "a.jsonl",
        [
            {"instruction": "Tip?", "completions": [{"response": "Oil it.", "overall_score": 8.0}, {"response": "No", "overall_score": 1.0}]},
            {"instruction": "Ok?", "completions": [{"response": "ok", "overall_score": 5.0}, {"response": "ok", "overall_score": 5.0}]},
        ],
        "dpo",
        {"prompt": "Tip?", "chosen": "Oil it.", "rejected": "No"},
    ),
    "helpsteer": (
        "a.csv",
        "prompt,response,helpfulness,correctness,verbosity\nKnot?,A mile an hour.,4,4,1\nKnot?,Rope,1,2,0\n",
        "dpo",
        {"prompt": "Knot?", "chosen": "A mile an hour.", "rejected": "Rope"},
    ),
    "reward_scores": (
        "a.jsonl",
        [{"prompt": "Hi", "response": "Away!", "reward": -1.0}, {"prompt": "Hi", "response": "Hello", "reward": 0.5}],
        "dpo",
        {"prompt": "Hi", "chosen": "Hello", "rejected": "Away!"},
    ),
    "arena_pairwise": (
        "a.csv",
        "model_a,model_b,winner,question,answer_a,answer_b\nx,y,model_b,Nut?,Bolt,Hazel\nx,y,tie (bothbad),Hi,A,B\n",
        "dpo",
        {"prompt": "Nut?", "chosen": "Hazel", "rejected": "Bolt"},
    ),
    "kto": (
        "a.jsonl",
        [{"prompt": "Hot?", "completion": "Yes.", "label": True}, {"prompt": "Hot?", "completion": "?", "label": False}],
        "kto",
        {"prompt": "Hot?", "completion": "Yes.", "label": True},
    ),
    "kto_messages": (
        "a.jsonl",
        [{"messages": [user("3*3?"), assistant("nine-ish")], "label": False}],
        "kto",
        {"prompt": [user("3*3?")], "completion": [assistant("nine-ish")], "label": False},
    ),
    "kto_thumbs": (
        "a.csv",
        "prompt,completion,label\nCold?,Perhaps.,👎\nCold?,Yes.,👍\n",
        "kto",
        {"prompt": "Cold?", "completion": "Perhaps.", "label": False},
    ),
    "gsm8k": (
        "a.jsonl",
        [{"question": "A cart holds 1,000 bags. Two carts?", "answer": "2*1000=<<2*1000=2000>>2000\n#### $2,000"}],
        "grpo",
        {"prompt": [user("A cart holds 1,000 bags. Two carts?")], "answer": "2000"},
    ),
    "openmath_reasoning": (
        "a.jsonl",
        [{"problem": "$1+1$?", "generated_solution": "<think>\n2\n</think>\n2", "expected_answer": "2", "pass_rate": "n/a"}],
        "grpo",
        {"prompt": [user("$1+1$?")], "answer": "2"},
    ),
    "grpo_prompt_only": (
        "a.jsonl",
        [{"prompt": [user("Four words on fog.")], "n_words": 4}],
        "grpo",
        {"prompt": [user("Four words on fog.")], "extra": {"n_words": 4}},
    ),
    "rlvr_messages": (
        "a.jsonl",
        [{"messages": [user("6*6?")], "ground_truth": "36", "dataset": "arith"}],
        "grpo",
        {"prompt": [user("6*6?")], "answer": "36"},
    ),
    "multiple_choice": (
        "a.csv",
        "question,A,B,C,D,answer\nWood?,Tin,Ash,Ice,Tea,B\n",
        "grpo",
        {"prompt": "Wood?\nA. Tin\nB. Ash\nC. Ice\nD. Tea", "answer": "B"},
    ),
    "multiple_choice_list": (
        "a.jsonl",
        [{"question": "Wood?", "choices": ["Tin", "Ash"], "answer": 1}],
        "grpo",
        {"prompt": "Wood?\nA. Tin\nB. Ash", "answer": "B"},
    ),
    "pretrain_text": ("a.jsonl", [{"text": "Oak.\n\nElm.", "meta": {"n": 1}}], "pretrain", {"text": "Oak.\n\nElm."}),
    "text_formatted": (
        "a.jsonl",
        [
            {"text": "### Human: Is oak hard?### Assistant: Yes."},
            {"text": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\n"},
            {"text": "<s>[INST] hi [/INST] ho </s>"},
        ],
        "sft",
        chat(user("Is oak hard?"), assistant("Yes.")),
    ),
    "text_folder": ("folder", text_folder, "pretrain", {"text": "# Ropes\n\nNever cut what you can untie.\n"}),
    "parquet_list_struct": (
        "a.parquet",
        parquet({"conversation": [[user("Fold?"), assistant("Fold.")]], "day": [None]}, _turn_structs),
        "sft",
        chat(user("Fold?"), assistant("Fold.")),
    ),
    "parquet_struct_of_lists": (
        "a.parquet",
        parquet({"conversations": [{"from": ["human", "gpt"], "value": ["Left?", "Right."]}]}),
        "sft",
        chat(user("Left?"), assistant("Right.")),
    ),
    "faq_export": ("a.xlsx", workbook, "sft", chat(user("Which berth?"), assistant("Seven."))),
    "pairs_tsv": (
        "a.tsv",
        'src\ttgt\n"Moin" sagte er\tHe said "hi"\nAbend\tEvening\n',
        "sft",
        chat(user('"Moin" sagte er'), assistant('He said "hi"')),
    ),
    "semicolon_excel": (
        "a.csv",
        "\ufeffPrompt;Response\n\"One; two\";Three\nPi;\"3,14\"\n",
        "sft",
        chat(user("One; two"), assistant("Three")),
    ),
    "pandas_columns": (
        "a.json",
        Whole({"prompt": {"0": "In?", "1": "Up?"}, "response": {"0": "Out", "1": "Down"}}),
        "sft",
        chat(user("In?"), assistant("Out")),
    ),
    "wrapped_data": (
        "a.json",
        Whole({"version": "1", "data": [{"instruction": "Wave", "output": "*waves*"}]}),
        "sft",
        chat(user("Wave"), assistant("*waves*")),
    ),
    "squad_nested": (
        "a.json",
        Whole(
            {
                "data": [
                    {
                        "title": "T",
                        "paragraphs": [
                            {
                                "context": "The pier is oak.",
                                "qas": [
                                    {"question": "Of what?", "answers": [{"text": "oak", "answer_start": 12}]},
                                    {"question": "By whom?", "answers": [], "is_impossible": True},
                                ],
                            }
                        ],
                    }
                ]
            }
        ),
        "sft",
        chat(user("The pier is oak.\n\nOf what?"), assistant("oak")),
    ),
    "seed_tasks": (
        "a.jsonl",
        [{"instruction": "Rename.", "instances": [{"input": "a.txt", "output": "notes.txt"}, {"input": "", "output": "b"}]}],
        "sft",
        chat(user("Rename.\na.txt"), assistant("notes.txt")),
    ),
}  # fmt: skip


def write(folder: Path, name: str) -> Path:
    """Write the shape's file into a folder."""
    file, content, _, _ = SHAPES[name]
    path = folder / file
    if callable(content):
        content(path)
    elif isinstance(content, Whole):
        path.write_text(json.dumps(content.value, ensure_ascii=False, indent=1), encoding="utf-8")
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        path.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content), encoding="utf-8"
        )
    return path
