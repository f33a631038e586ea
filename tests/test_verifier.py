"""The verifier: the box, the verdict on every kind of answer, hostile answers, and the processes.

Expected verdicts are written down by hand in `data/verifier_cases.jsonl` and
`data/verifier_kinds.jsonl`. Deadlines are short where they are meant to pass and long elsewhere;
nothing here measures time.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from lens_ref.verifier import MAX_ANSWER_CHARS, Verdict, Verifier, extract_boxed
from lens_ref.verifier.process import WorkerProcess

DATA = Path(__file__).parent / "data"
PATIENT, SHORT = 60.0, 0.5
TOWERS = [r"10^{10^{10}}", r"9^{9^{9^{9}}}", r"10000000!", r"2^{2^{30}}"]


def box(content: str) -> str:
    return rf"\boxed{{{content}}}"


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def verifier():
    with Verifier(workers=2, timeout=PATIENT) as shared:
        yield shared


# --- the box ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"First \boxed{5}, no: \boxed{3}.", "3"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{ 7 }", "7"),
        ("\\boxed\n{8}", "8"),
        (r"\fbox{9}", "9"),
        (r"\\boxed{7}", "7"),
        (r"\boxed 5", "5"),
        (r"so \boxed A.", "A"),
        (r"\boxed{}", ""),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ a \right.}", r"\left\{ a \right."),
        (r"\boxed{\boxed{4}}", "4"),
        (r"\boxed{x = \boxed{6}}", "6"),
        (r"{{ stray \boxed{7} }", "7"),
        (r"}} stray \boxed{7}", "7"),
        (r"\boxed{4} wait \boxed{", "4"),
        (r"\boxed{4} so \boxed{\frac{1}{2}", "4"),
        (r"\boxed{6 and \boxed{5}", "5"),
        (r"x = 3 and then \boxed{", None),
        (r"\boxed{\frac{1}{2} is cut", None),
        (r"I computed 1, 2, 3", None),
        (r"\boxedfoo{8}", None),
        (r"\boxed answer", None),
        ("", None),
    ],
)
def test_last_balanced_box(text, content):
    assert extract_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("{" * 1_000_000, None),
        ("\\" * 1_000_000, None),
        (r"\boxed{" * 100_000, None),
        (r"\boxed{" * 100_000 + "1" + "}" * 100_000, "1"),
        (r"\boxed{2}" + r"\boxed{" + "{" * 1_000_000, "2"),
        ("\\boxed" + " " * 1_000_000, None),
    ],
    ids=["braces", "backslashes", "open boxes", "nested boxes", "box then braces", "blanks"],
)
def test_megabytes_of_braces_take_one_pass(text, content):
    assert extract_boxed(text) == content  # quadratic work would take hours here


# --- kinds of answers ---------------------------------------------------------------------------


def wrong_verdicts(verifier: Verifier, cases: list[dict]) -> list[str]:
    verdicts = verifier.grade([c["gold"] for c in cases], [box(c["candidate"]) for c in cases])
    return [
        f"{case['gold']!r} against {case['candidate']!r}: {verdict.reason}"
        for case, verdict in zip(cases, verdicts, strict=True)
        if (verdict.reward == 1.0) != case["equal"]
    ]


def test_verdicts_on_reference_cases(verifier):
    """Cases that are equal in value but ask for another form (`form_lenient`) may go either way."""
    cases = [case for case in rows("verifier_cases.jsonl") if not case["form_lenient"]]
    assert len(cases) > 140
    endless = [case for case in cases if "10^{10^" in case["candidate"]]
    assert wrong_verdicts(verifier, [case for case in cases if case not in endless]) == []
    with Verifier(workers=1, timeout=SHORT) as hasty:
        assert wrong_verdicts(hasty, endless) == []


KINDS = sorted({case["kind"] for case in rows("verifier_kinds.jsonl")})


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_by_kind_of_answer(verifier, kind):
    cases = [case for case in rows("verifier_kinds.jsonl") if case["kind"] == kind]
    assert {case["equal"] for case in cases} == {True, False}
    assert wrong_verdicts(verifier, cases) == []


def test_reasons(verifier):
    golds = ["3", "5", "1,234", "1,234", "-5", "1/2", "7", "7", "7", r"\frac{1}{", "x+1", "2"]
    texts = [
        r"First try \boxed{5} ... final \boxed{3}",
        r"First try \boxed{5} ... final \boxed{3}",
        r"\boxed{1234}",
        r"\boxed{234}",
        r"the answer is \boxed{-5}",
        r"\boxed{0.50}",
        "the answer is 7",
        r"7 and so \boxed{7",
        r"\boxed{}",
        r"\boxed{\frac{1}{}",
        r"\boxed{x + \frac{}}",
        box("2" * (MAX_ANSWER_CHARS + 1)),
    ]
    expected = [
        "correct", "wrong", "correct", "wrong", "correct", "correct", "no_answer", "no_answer",
        "no_answer", "no_answer", "unparsable", "unparsable",
    ]  # fmt: skip
    assert [v.reason for v in verifier.grade(golds, texts)] == expected
    # a gold that does not parse is nobody's fault but the data's
    assert verifier.grade([r"\frac{1}{"], [box("3")])[0].reason == "error"


def test_the_route_tells_how_the_verdict_was_reached(verifier, monkeypatch):
    golds = ["7", "7", "x+1", r"\text{Monday}"]
    texts = ["7", r"\boxed{7}", r"\boxed{1+x}", r"\boxed{Monday}"]
    assert [v.route for v in verifier.grade(golds, texts)] == ["box", "number", "math", "text"]
    monkeypatch.setattr(verifier, "shortcuts", False)
    assert verifier.grade(["7"], [box("7.0")])[0].route == "math"


def test_golds_are_checked(verifier):
    golds = [r"\dfrac{9}{7}", r"\text{Dana}", "5", "(0, 3]", "", "  ", r"\frac{1}{", "x" * 5000]
    assert verifier.check_golds(golds) == [True, True, True, True, False, False, False, False]


# --- hostile answers ----------------------------------------------------------------------------


def test_towers_time_out_and_honest_answers_still_get_their_grade():
    with Verifier(workers=2, timeout=SHORT) as verifier:
        texts = [box(tower) for tower in TOWERS] + [box(TOWERS[0])] * 2
        reasons = [v.reason for v in verifier.grade(["1"] * 6, texts)]
        assert reasons == ["timeout"] * 6
        assert verifier.counts["timeout"] == 6
        assert verifier.grade(["1"], [r"\boxed{1}"]) == [Verdict(1.0, "correct")]
        assert verifier.check_golds([TOWERS[0], "4"]) == [False, True]  # a hostile gold
        killed = verifier.starts
        verifier.timeout = PATIENT
        assert verifier.grade(["1/2", "x"], [box(r"\frac{2}{4}"), box("2x-x")]) == [
            Verdict(1.0, "correct"),
            Verdict(1.0, "correct"),
        ]
        assert verifier.starts > killed  # a process that was killed is replaced


def test_odd_bytes_and_code_are_only_text(verifier, tmp_path):
    trace = tmp_path / "executed"
    answers = [
        "1\x002",
        "\x00",
        "\ud800",
        "\udfff\ud800",
        f"__import__('os').system('touch {trace}')",
        f"open('{trace}', 'w')",
        rf"\input{{{trace}}}",
        r"\write18{id}",
        "{}" * 500,
        r"\{" * 400,
        "%" * 300,
        r"\pm" * 100,
        "^" * 200,
        r"\begin{pmatrix}" * 40,
        "1e999999999",
        r"\frac{1}{0}",
        "0/0",
        "\u202e12",
    ]
    verdicts = verifier.grade(["12"] * len(answers), [box(answer) for answer in answers])
    assert {v.reward for v in verdicts} == {0.0}
    assert {v.reason for v in verdicts} <= {"wrong", "unparsable", "no_answer"}
    assert not trace.exists()
    assert verifier.grade(["1"], [r"\boxed{1}"])[0].reward == 1.0


def test_what_has_no_value_is_unparsable_not_an_error(verifier):
    """sympy raises errors of many kinds; "error" is kept for golds and processes that fail."""
    answers = [
        r"\begin{pmatrix} 1 & 2 \end{pmatrix}^{3}",
        r"\frac{1}{0}",
        "x" * 600,
        "3 @ 4",
        "__x",
    ]
    verdicts = verifier.grade(["x^2"] * len(answers), [box(answer) for answer in answers])
    assert {v.reward for v in verdicts} == {0.0}
    assert {v.reason for v in verdicts} <= {"wrong", "unparsable"}


@pytest.mark.slow
def test_hostile_answers_of_every_kind_leave_the_grades_of_others_alone():
    from tests.soak.answers import measure

    assert [figure for figure in measure(quick=True) if not figure.met] == []


def test_a_worker_cannot_write_files_start_programs_or_take_all_memory(tmp_path):
    worker = Path(sys.modules["lens_ref.verifier.worker"].__file__)
    code = (
        f"import runpy; w = runpy.run_path({str(worker)!r}); w['_restrict'](1024)\n"
        f"import pathlib; probe = pathlib.Path({str(tmp_path / 'probe')!r})\n"
        "try:\n    probe.write_text('x')\n    print('written')\n"
        "except OSError:\n    print('refused')\n"
        "import os\n"
        "if os.geteuid() == 0:\n    os.setuid(65534)\n"  # the kernel lets root start any number
        "try:\n    os.fork()\n    print('started')\n"
        "except BlockingIOError:\n    print('alone')\n"
        "try:\n    bytearray(3 << 30)\n    print('taken')\n"
        "except MemoryError:\n    print('bounded')\n"
    )
    if not sys.platform.startswith("linux"):
        pytest.skip("limits of this kind are Linux's")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused", "alone", "bounded"]


# --- processes and threads ----------------------------------------------------------------------


def test_same_verdicts_from_another_thread(verifier):
    golds, texts = ["1/2", "3", "x"], [box(r"\frac{3}{6}"), box(r"\sqrt{9}"), box("y")]
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.extend(verifier.grade(golds, texts)))
    thread.start()
    thread.join()
    assert [v.reason for v in found] == ["correct", "correct", "wrong"]
    assert found == verifier.grade(golds, texts)


def test_calls_from_many_threads_do_not_mix(verifier):
    found: dict[int, list[float]] = {}

    def call(k: int) -> None:
        texts = [box(rf"\sqrt{{{n * n}}}") for n in range(5)]
        found[k] = [v.reward for v in verifier.grade([str(k)] * 5, texts)]

    threads = [threading.Thread(target=call, args=(k,)) for k in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: [float(n == k) for n in range(5)] for k in range(5)}


def test_the_timer_of_the_caller_is_left_alone(verifier):
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    verifier.grade(["z+1"], [box("1+z")])
    assert before == (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL))


def test_equal_pairs_are_graded_once_and_remembered():
    with Verifier(workers=1, timeout=PATIENT, recycle=1) as verifier:  # one start an answer graded
        verifier.grade(["2x"] * 4, [box("x+x")] * 4)
        verifier.grade(["2x"], ["again " + box("x+x")])
        assert (verifier.starts, verifier.counts["correct"]) == (1, 5)
        verifier.grade(["2x"], [box("3x")])
        assert verifier.starts == 2


def test_counts_cover_every_verdict():
    with Verifier(workers=1, timeout=PATIENT) as verifier:
        verifier.grade(["1", "2", "3"], [r"\boxed{1}", r"\boxed{1}", "none"])
        verifier.grade(["1"], [r"\boxed{1}"])
        assert verifier.counts == Counter(correct=2, wrong=1, no_answer=1)
        assert verifier.starts == 0  # plain numbers need no process


def test_a_dead_worker_is_replaced_and_none_is_left_after_with():
    with Verifier(workers=1, timeout=PATIENT) as verifier:
        assert verifier.grade(["2x"], [box("x+x")])[0].reward == 1.0
        os.kill(verifier._workers[0]._process.pid, signal.SIGKILL)
        verifier._workers[0]._process.wait()
        assert verifier.grade(["3x"], [box("x+2x")])[0].reward == 1.0
        assert verifier.starts == 2
        process = verifier._workers[0]._process
    assert process.poll() is not None


# The script has no `if __name__ == "__main__"` on purpose: nothing may import it a second time.
ORPHAN_SCRIPT = r"""
import sys
print("loaded")
from lens_ref.verifier import Verifier
verifier = Verifier(workers=1, timeout=60.0)
print(verifier.grade(["2x"], [r"\boxed{x+x}"])[0].reason)
print(verifier._workers[0]._process.pid, flush=True)
if sys.argv[1] == "wait":
    sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["kill -9", pytest.param("exit", marks=pytest.mark.slow)])
def test_workers_end_with_their_parent(ending, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(ORPHAN_SCRIPT)
    parent = subprocess.Popen(
        [sys.executable, str(script), "wait" if ending == "kill -9" else "exit"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    lines = [parent.stdout.readline().strip() for _ in range(3)]
    assert lines[:2] == ["loaded", "correct"]
    if ending == "kill -9":
        parent.kill()
    assert parent.stdout.read() == ""  # the module ran once
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    wait_until_gone(int(lines[2]))


def wait_until_gone(pid: int, attempts: int = 600) -> None:
    """Fail if process `pid` still runs after a minute; an unreaped zombie is gone."""
    pause = threading.Event()
    for _ in range(attempts):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        pause.wait(0.1)
    pytest.fail(f"process {pid} outlived its parent")


def test_workers_load_no_torch(verifier):
    verifier.grade(["2x"], [box("x+x+0")])
    pids = [w._process.pid for w in verifier._workers if w._process is not None]
    maps = Path(f"/proc/{pids[0]}/maps")
    if not maps.exists():
        pytest.skip("needs /proc")
    assert "libtorch" not in maps.read_text()


def test_workers_do_not_see_the_environment_s_secrets(verifier, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "secret")
    worker = WorkerProcess(memory_mb=1024, recycle=10)
    try:
        worker.ask({"task": "gold", "gold": "1"}, PATIENT)
        environment = Path(f"/proc/{worker._process.pid}/environ")
        if not environment.exists():
            pytest.skip("needs /proc")
        assert b"SOME_TOKEN" not in environment.read_bytes()
    finally:
        worker.stop()


def test_messages_are_bounded_and_carry_any_text():
    import io

    from lens_ref.verifier import worker

    stream = io.BytesIO()
    worker.write_message(stream, {"answer": "\ud800\x00é"})
    stream.seek(0)
    assert worker.read_message(stream) == {"answer": "\ud800\x00é"}
    assert worker.read_message(stream) is None
    assert worker.read_message(io.BytesIO(b"\x00\x00\x00\x09{")) is None
    with pytest.raises(ValueError, match="longer than"):
        worker.read_message(io.BytesIO(b"\xff\xff\xff\xff"))


# --- misuse -------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["workers", "timeout", "memory_mb", "recycle", "cache_size"])
def test_settings_must_be_positive(field):
    with pytest.raises(ValueError, match=f"{field} must be positive, got 0"):
        Verifier(**{field: 0})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("workers", "a", "workers must be a whole number, got 'a'"),
        ("workers", 1.5, "workers must be a whole number, got 1.5"),
        ("workers", True, "workers must be a whole number, got True"),
        ("workers", -1, "workers must be positive, got -1"),
        ("timeout", None, "timeout must be a finite number of seconds, got None"),
        ("timeout", float("nan"), "timeout must be a finite number of seconds, got nan"),
        ("timeout", float("inf"), "timeout must be a finite number of seconds, got inf"),
        ("timeout", -1, "timeout must be positive, got -1"),
    ],
)
def test_settings_of_another_kind_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        Verifier(**{field: value})


def test_one_string_is_no_list(verifier):
    with pytest.raises(ValueError, match=r"golds must be a list of strings.*one str"):
        verifier.grade("3", ["x"])
    with pytest.raises(ValueError, match=r"texts must be a list of strings.*one str"):
        verifier.grade(["3"], "x")
    with pytest.raises(ValueError, match=r"texts must be a list of strings.*one NoneType"):
        verifier.grade(["3"], None)
    with pytest.raises(ValueError, match=r"golds must be a list of strings.*one str"):
        verifier.check_golds("3")


def test_lists_must_match_and_hold_strings(verifier):
    with pytest.raises(ValueError, match="got 1 golds for 2 texts"):
        verifier.grade(["1"], ["a", "b"])
    with pytest.raises(TypeError, match=r"texts\[1\] must be a string, got NoneType"):
        verifier.grade(["1", "1"], ["a", None])
    with pytest.raises(TypeError, match=r"golds\[0\] must be a string, got int"):
        verifier.check_golds([1])
    assert verifier.grade([], []) == []


def test_a_worker_that_cannot_start_says_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "sympy.py").write_text("raise ImportError('no sympy here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        Verifier(workers=1, timeout=PATIENT) as verifier,
        pytest.raises(RuntimeError, match=r"no sympy here.*pip install"),
    ):
        verifier.grade(["x"], [box("y")])


# --- all golds of MATH --------------------------------------------------------------------------


@pytest.mark.slow
def test_every_gold_of_math_verifies_against_itself():
    """By algebra, not by comparing strings: `shortcuts=False` sends each one through sympy."""
    folder = os.environ.get("LENS_REF_DATA")
    if folder is None:
        pytest.skip("LENS_REF_DATA names no folder with math_train.jsonl.gz, math_test.jsonl.gz")
    golds: list[str] = []
    for name in ("math_train.jsonl.gz", "math_test.jsonl.gz"):
        with gzip.open(Path(folder) / name, "rt", encoding="utf-8") as lines:
            golds += [json.loads(line)["answer"] for line in lines]
    assert len(golds) == 12_500
    with Verifier(workers=2, timeout=PATIENT, shortcuts=False) as verifier:
        assert all(verifier.check_golds(golds))
        verdicts = verifier.grade(golds, [box(gold) for gold in golds])
    failed = [g for g, v in zip(golds, verdicts, strict=True) if v.reward != 1.0]
    assert failed == []
    routes = Counter(v.route for v in verdicts)
    assert routes["math"] > 12_000
    assert set(routes) == {"math", "text"}
