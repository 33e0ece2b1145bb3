"""The judge, against a real server of this machine: marks, time-outs, errors, and who may be asked."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.rewards.judge import mark_in
from data.errors import FactoryError


class Server(ThreadingHTTPServer):
    """Replies as its `reply` says: a text, a status, or a call that takes its time."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.headers, self.open, self.most_open = [], [], 0, 0
        self.lock = threading.Lock()
        self.reply = lambda question: "8"

    @property
    def url(self):
        """Its address as a job would name it."""
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
            self.server.asked.append((self.path, body))
            self.server.headers.append(dict(self.headers))
        reply = self.server.reply(body["messages"][0]["content"])
        with self.server.lock:
            self.server.open -= 1
        status, text = reply if isinstance(reply, tuple) else (200, json.dumps(_openai(reply)))
        try:
            self.send_response(status)
            if status == 302:
                self.send_header("Location", self.server.url + "/elsewhere")
            self.end_headers()
            self.wfile.write(text.encode())
        except OSError:
            pass  # the judge's client has gone: its time was over

    def log_message(self, *words):
        """Silence."""


def _openai(text):
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


@pytest.fixture
def server(bench):
    """A judge on this machine, listed by the operator."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    bench.environ["FACTORY_JUDGES"] = f"https://judge.example/v1, {server.url}/"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def judge(server, **more):
    return {"name": "judge", "url": server.url, "judge_model": "tester", "seconds": 5.0, "retries": 0, **more}


COLUMNS = {"prompt": ["2+2?", "3+3?"]}


def refusal(action):
    with pytest.raises(FactoryError) as caught:
        action()
    (finding,) = caught.value.findings
    assert "\n" not in finding.message
    return finding


def test_marks_become_scores_between_0_and_1(bench, server):
    server.reply = lambda question: "10" if "<answer>\n4\n" in question else "Mark: 2.5/10"
    (one,) = bench.build(judge(server))
    assert one(["4", "7"], COLUMNS) == [1.0, 0.25]
    path, body = server.asked[0]
    assert path == "/v1/chat/completions"
    assert (body["model"], body["temperature"]) == ("tester", 0)
    assert "from 0 (useless) to 10 (perfect)" in body["messages"][0]["content"]


def test_the_question_is_filled_in_once_with_any_column(bench, server):
    reward = judge(server, question="{prompt}|{completion}|{rubric}|{unknown}|{{x}}")
    (one,) = bench.build(reward)
    one(["{prompt} {rubric}"], {"prompt": ["P"], "rubric": ["R"]})
    assert server.asked[0][1]["messages"][0]["content"] == "P|{prompt} {rubric}|R|{unknown}|{{x}}"


def test_the_scale_and_the_length_of_the_reply_are_the_jobs(bench, server):
    server.reply = lambda question: "5"
    assert bench.score(judge(server, lowest=1, highest=5, max_tokens=7), ["4"], prompt=["2+2?"]) == [1.0]
    body = server.asked[0][1]
    assert "from 1 (useless) to 5 (perfect)" in body["messages"][0]["content"] and body["max_tokens"] == 7


def test_a_judge_that_times_out_is_a_clear_error_and_never_a_zero(bench, server):
    server.reply = lambda question: time.sleep(1.5) or "8"
    (one,) = bench.build(judge(server, seconds=0.2))
    finding = refusal(lambda: one(["4", "6"], COLUMNS))
    assert (finding.code, finding.level) == ("judge_failed", "error")
    assert "no reply within 0.2 s" in finding.message and "'2+2?'" in finding.message


def test_a_judge_that_times_out_can_be_skipped_with_a_warning(bench, server):
    server.reply = lambda question: time.sleep(1.5 * ("4" in question.split("<answer>")[1])) or "8"
    (one,) = bench.build(judge(server, seconds=0.5, on_failure="skip"))
    assert one(["4", "6"], COLUMNS) == [None, 0.8]
    (finding,) = bench.told
    assert (finding.code, finding.level) == ("judge_failed", "warning")
    assert "1 of 2 answers" in finding.message


def test_it_asks_again_after_a_time_out_or_an_error(bench, server):
    replies = iter([(503, "busy"), "no idea", "7"])
    server.reply = lambda question: next(replies)
    assert bench.build(judge(server, retries=2))[0](["4"], {"prompt": ["2+2?"]}) == [0.7]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ((500, "broken\npipe"), "status 500: 'broken pipe'"),
        ((401, "no key"), "status 401"),
        ((302, ""), "status 302"),
        ((200, "<html>"), "not of the OpenAI form"),
        ((200, '{"choices": []}'), "not of the OpenAI form"),
        ("I like it", "no mark from 0 to 10"),
        ("11", "no mark from 0 to 10"),
        (None, "no mark"),
    ],
)
def test_a_reply_without_a_mark_is_a_clear_error(bench, server, reply, said):
    server.reply = lambda question: reply
    (one,) = bench.build(judge(server))
    assert said in refusal(lambda: one(["4"], {"prompt": ["2+2?"]})).message
    assert len(server.asked) == 1, "a redirect is not followed"


def test_a_judge_that_is_not_there_is_a_clear_error(bench):
    bench.environ["FACTORY_JUDGES"] = "http://127.0.0.1:9/v1"
    reward = {"name": "judge", "url": "http://127.0.0.1:9/v1", "judge_model": "m", "retries": 0}
    (one,) = bench.build(reward)
    assert "cannot be reached (ConnectError)" in refusal(lambda: one(["4"], {"prompt": ["q"]})).message


@pytest.mark.parametrize("listed", ["", "http://127.0.0.1", "https://judge.example/v1"])
def test_only_an_address_that_the_operator_listed_is_asked(bench, server, listed):
    bench.environ["FACTORY_JUDGES"] = listed
    finding = refusal(lambda: bench.build(judge(server)))
    assert (finding.code, finding.field) == ("judge_not_listed", "rewards[0].url")
    assert server.asked == []


@pytest.mark.parametrize("more", ["/../v2", "@evil.example/", "/", "?x=1", "x"])
def test_an_address_near_a_listed_one_is_not_that_one(bench, server, more):
    if more == "/":
        assert bench.build({**judge(server), "url": server.url + more})
        return
    with pytest.raises(FactoryError):
        bench.build({**judge(server), "url": server.url + more})


def test_the_key_comes_from_the_environment_and_is_told_nowhere(bench, server):
    reward = judge(server, key_env="MY_API_KEY")
    assert "MY_API_KEY" in refusal(lambda: bench.build(reward)).message
    bench.environ["MY_API_KEY"] = "s3cret"
    server.reply = lambda question: (401, "bad key")
    (one,) = bench.build(reward)
    assert "s3cret" not in refusal(lambda: one(["4"], {"prompt": ["q"]})).message
    assert server.headers[0]["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize(
    "wrong",
    [
        {"key_env": "HF_TOKEN"},
        {"key_env": "sk-abc"},
        {"url": "file:///etc/passwd"},
        {"url": "http://user:pass@host/v1"},
        {"lowest": 10.0},
        {"question": "is it good?"},
    ],
)
def test_a_wrong_setting_is_refused_by_the_job(bench, server, wrong):
    with pytest.raises(FactoryError):
        bench.build(judge(server, **wrong))
    assert server.asked == []


def test_no_more_questions_are_open_than_asked_for(bench, server):
    server.reply = lambda question: time.sleep(0.05) or "5"
    (one,) = bench.build(judge(server, concurrency=3))
    assert one(["a"] * 9, {"prompt": ["q"] * 9}) == [0.5] * 9
    assert 1 < server.most_open <= 3


@pytest.mark.parametrize(
    ("reply", "mark"),
    [
        ("8", 0.8),
        ("8/10", 0.8),
        ("Score: 7.5 / 10.", 0.75),
        ("<think>maybe 3</think>\n9", 0.9),
        ("I gave 3 for style, 4 in all", 0.4),
        ("-1", None),
        ("100", None),
        ("", None),
    ],
)
def test_the_mark_is_the_last_number_within_the_bounds(reply, mark):
    assert mark_in(reply, 0, 10) == mark


@given(st.text(max_size=200))
def test_no_reply_gives_a_mark_outside_0_to_1(reply):
    mark = mark_in(reply, 0, 10)
    assert mark is None or 0 <= mark <= 1
