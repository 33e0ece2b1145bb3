"""Writes the bundled samples (but persona.jsonl): `python data/samples/generate.py`. All texts are our own.

A test runs this and compares, so a sample changes only together with the code that makes it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PLACES = ("Norhavn", "Eastquay", "Ravensund", "Kelp Bay", "Old Pier", "Tern Island", "Millmouth", "Greyfjord")
BOATS = ("ferry", "tug", "pilot boat", "dredger", "sloop", "trawler", "survey ship", "lifeboat")
PEOPLE = ("Ane", "Bo", "Carla", "Dag", "Edda", "Finn", "Greta", "Hugo", "Ines", "Jon", "Karin", "Lars")
GOODS = (
    "crates of tea",
    "sacks of oats",
    "coils of rope",
    "barrels of tar",
    "boxes of nails",
    "bags of salt",
)


def texts(pick: random.Random) -> list[dict[str, Any]]:
    """Short documents about harbours, for pretraining."""
    openings = (
        "{place} has had a harbour for {years} years. It began as a row of posts, to which a {boat} was tied at night.",
        "The keeper of the light at {place} writes the weather into a book, morning and evening, and has done so for "
        "{years} years.",
        "A {boat} that comes to {place} in winter waits outside until the ice pilot has seen it.",
        "In {place} the day begins with the {boat}, which leaves at {hour} whether anybody is on board or not.",
    )
    middles = (
        "The quay was rebuilt in stone after a storm took the wooden one, and the old posts can be seen at low water.",
        "Two cranes stand there. The smaller one is older, and everybody trusts it more.",
        "Whoever ties up pays at the small window, where {person} gives out a numbered brass plate.",
        "The tide comes twice a day, about fifty minutes later each day, and the timetable follows it.",
        "Fog is worse than wind: in fog the bell is rung once a minute, by hand.",
    )
    ends = (
        "In the evening the lamps go on one by one, from the sea towards the town.",
        "On Sundays nothing moves but gulls.",
        "Children learn the flags before they learn the letters.",
        "Last year {count} ships came in, and all of them left again.",
    )
    made = []
    for number in range(60):
        words = {
            "place": PLACES[number % len(PLACES)],
            "boat": pick.choice(BOATS),
            "years": pick.randint(80, 400),
            "hour": pick.choice(("five", "six", "half past six")),
            "person": pick.choice(PEOPLE),
            "count": pick.randint(90, 900),
        }
        parts = [pick.choice(openings), *pick.sample(middles, pick.randint(1, 3)), pick.choice(ends)]
        made.append({"text": "\n\n".join(part.format(**words) for part in parts)})
    return made


QUESTIONS = (
    ("What is a {thing}?", "A {thing} is {what}."),
    ("Explain in one sentence what a {thing} is.", "It is {what}."),
    ("I keep hearing the word {thing}. What does it mean?", "People call {what} a {thing}."),
)
THINGS = (
    ("mooring line", "the rope that holds a ship to the quay"),
    ("fender", "the cushion that keeps a hull off the wall"),
    ("breakwater", "a wall in the sea that takes the force out of the waves"),
    ("bollard", "a short post to which ropes are made fast"),
    ("berth", "the place where a ship lies in a harbour"),
    ("draught", "the depth of water that a ship needs"),
    ("buoy", "a float that marks a place in the water"),
    ("gangway", "the bridge between a ship and the land"),
    ("dry dock", "a basin from which the water can be let out, so that a hull can be mended"),
    ("pilot", "the person who knows the way in and guides foreign ships"),
    ("spring tide", "the very high and very low water around new and full moon"),
    ("neap tide", "the small tide around half moon"),
    ("knot", "a speed of one nautical mile an hour"),
    ("log book", "the diary of a ship, in which courses and weather are written"),
    ("hold", "the room under the deck where cargo is stowed"),
    ("ballast", "weight low in the hull that keeps a ship upright"),
    ("jetty", "a small pier that reaches out from the land"),
    ("windlass", "the winch that lifts the anchor"),
    ("hawser", "a very thick rope for towing"),
    ("lee", "the side that is sheltered from the wind"),
)
FOLLOW = (
    ("Could you say that for a child?", "Think of it like this: {what}, that is all."),
    ("Thank you. And in five words or fewer?", "{short}."),
    ("Do small boats have that, too?", "Some do; it depends on their size and on the harbour."),
)


def chats(pick: random.Random) -> list[dict[str, Any]]:
    """Conversations of one and two exchanges, some with a system turn, for fine-tuning."""
    made = []
    for number in range(120):
        thing, what = THINGS[number % len(THINGS)]
        asked, answered = QUESTIONS[(number // len(THINGS)) % len(QUESTIONS)]
        words = {"thing": thing, "what": what, "short": " ".join(what.split()[:5]).capitalize()}
        turns = [] if number % 3 else [{"role": "system", "content": "You answer briefly and plainly."}]
        turns += _exchange(asked.format(**words), answered.format(**words))
        if number % 2:
            asked, answered = pick.choice(FOLLOW)
            turns += _exchange(asked, answered.format(**words))
        made.append({"messages": turns})
    return made


def _exchange(asked: str, answered: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]


def tools(pick: random.Random) -> list[dict[str, Any]]:
    """Conversations in which a function is called and its result is used, for fine-tuning with tools."""
    tide = _tool("tide_at", "Time of the next high water", {"place": "string"})
    berth = _tool("free_berths", "Number of free berths", {"place": "string", "longest_m": "integer"})
    made = []
    values: dict[str, Any]
    result: dict[str, Any]
    for number in range(60):
        place = PLACES[number % len(PLACES)]
        if number % 2:
            hour = f"{pick.randint(0, 23):02d}:{pick.randint(0, 59):02d}"
            asked, name = f"When is high water at {place}?", "tide_at"
            values = {"place": place}
            result = {"high": hour}
            said = f"High water at {place} is at {hour}."
        else:
            length, free = pick.randint(6, 40), pick.randint(0, 9)
            values = {"place": place, "longest_m": length}
            asked = f"Is there room for a boat of {length} metres at {place}?"
            name, result = "free_berths", {"free": free}
            said = (
                f"Yes, {free} berths are free at {place}." if free else f"No, {place} is full at the moment."
            )
        call = {"type": "function", "function": {"name": name, "arguments": json.dumps(values)}}
        turns = [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": json.dumps(result)},
            {"role": "assistant", "content": said},
        ]
        made.append({"messages": turns, "tools": [tide, berth]})
    return made


def _tool(name: str, about: str, values: dict[str, str]) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in values.items()}
    schema = {"type": "object", "properties": properties, "required": list(values)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


RUDE = (
    "Look it up yourself.",
    "Why do you ask?",
    "I do not know, and it does not matter.",
    "That is a thing with ships, I think, maybe, or it might be something else, hard to tell.",
)


def preferences(pick: random.Random) -> list[dict[str, Any]]:
    """A plain answer against an unhelpful one, for reward models, DPO and ORPO."""
    made = []
    for number in range(80):
        thing, what = THINGS[number % len(THINGS)]
        asked, answered = QUESTIONS[(number // len(THINGS)) % len(QUESTIONS)]
        other = THINGS[(number + pick.randint(1, len(THINGS) - 1)) % len(THINGS)][1]
        bad = pick.choice((*RUDE, f"It is {other}."))
        prompt = asked.format(thing=thing)
        made.append({"prompt": prompt, "chosen": answered.format(thing=thing, what=what), "rejected": bad})
    return made


def thumbs(pick: random.Random) -> list[dict[str, Any]]:
    """Single answers with a thumb up or down, for KTO."""
    made = []
    for row in preferences(pick):
        good = pick.random() < 0.5
        answer = row["chosen"] if good else row["rejected"]
        made.append({"prompt": row["prompt"], "completion": answer, "label": good})
    return made


def maths(pick: random.Random) -> list[dict[str, Any]]:
    """Word problems with a worked answer that ends in #### and the number, for training by rewards."""
    return [pick.choice((_cargo, _trips, _share, _rest))(pick) for _ in range(120)]


def _cargo(pick: random.Random) -> dict[str, Any]:
    each, count, lost = pick.randint(4, 30), pick.randint(3, 12), pick.randint(2, 9)
    goods, person = pick.choice(GOODS), pick.choice(PEOPLE)
    question = f"{person} loads {count} carts with {each} {goods} each. {lost} fall into the water. How many are left?"
    steps = f"{count} carts hold {count} * {each} = {count * each}.\n{count * each} - {lost} = {count * each - lost}."
    return _worked(question, steps, count * each - lost)


def _trips(pick: random.Random) -> dict[str, Any]:
    trips, seats, days = pick.randint(3, 9), pick.randint(12, 60), pick.randint(2, 7)
    boat = pick.choice(BOATS)
    question = f"A {boat} makes {trips} trips a day with {seats} people each. How many people in {days} days?"
    steps = f"{trips} * {seats} = {trips * seats} people a day.\n{trips * seats} * {days} = {trips * seats * days}."
    return _worked(question, steps, trips * seats * days)


def _share(pick: random.Random) -> dict[str, Any]:
    people, each = pick.randint(3, 9), pick.randint(5, 40)
    one, other = pick.sample(PEOPLE, 2)
    coins = people * each
    question = (
        f"{one} and {other} share out {coins} coins among {people} sailors equally. How many does each get?"
    )
    return _worked(question, f"{people * each} / {people} = {each}.", each)


def _rest(pick: random.Random) -> dict[str, Any]:
    length, cut, times = pick.randint(80, 200), pick.randint(3, 12), pick.randint(2, 6)
    question = f"A rope is {length} metres long. {times} pieces of {cut} metres are cut off. How many metres are left?"
    steps = f"{times} * {cut} = {times * cut} metres are cut off.\n{length} - {times * cut} = {length - times * cut}."
    return _worked(question, steps, length - times * cut)


def _worked(question: str, steps: str, answer: int) -> dict[str, Any]:
    return {"question": question, "answer": f"{steps}\n#### {answer}"}


SAMPLES: dict[str, Callable[[random.Random], list[dict[str, Any]]]] = {
    "text": texts,
    "chat": chats,
    "tools": tools,
    "preference": preferences,
    "thumbs": thumbs,
    "maths": maths,
}


def content(name: str) -> str:
    """The sample as JSON Lines without repeated rows; the same on every machine."""
    rows = SAMPLES[name](random.Random(f"harbour {name}"))
    return "".join(dict.fromkeys(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def main() -> None:
    """Write every sample beside this file."""
    for name in SAMPLES:
        (FOLDER / f"{name}.jsonl").write_text(content(name), encoding="utf-8")


if __name__ == "__main__":
    main()
