"""What the storage did in a window: the side, the chain, the clocks, and what stays open."""

import datetime
import random
from pathlib import Path

import pytest

from harness.diagnose.logs.aistore.assess import assess
from harness.diagnose.logs.aistore.model import DaemonRow, Daemons, Link, StorageReport
from harness.diagnose.logs.aistore.read import read_daemons

from .made import BROKEN, DROPPED, LOST, PRESSURE, Log, read, report, unix

WINDOW = ("2025-11-19 20:00:00", "2025-11-19 21:00:00")
DEATH = "2025-11-19 21:00:00"
DAY = "2025-11-19"


def at(clock: str) -> str:
    """A time of the day of the incident."""
    return f"{DAY} {clock}:00"


def daemon(role: str = "target", number: int = 1, began: str = "16:00") -> Log:
    """A daemon that began some hours before the window."""
    return Log(unix(at(began)), role=role, number=number)


def calm(role: str = "target", number: int = 1) -> Log:
    """A daemon that serves until the job's death and is idle after it."""
    log = daemon(role, number).run(at("21:00"), get_n=9000, getbatch_n=50, err_get_n=1)
    return log.run(at("22:30"))


def failing(number: int = 2, hours: int = 0) -> Log:
    """A target with the whole chain between 20:30 and 20:37, then idle; its clock is `hours` ahead."""
    shift = hours * 3600

    def clock(text: str) -> str:
        moment = datetime.datetime.strptime(at(text), "%Y-%m-%d %H:%M:%S") + datetime.timedelta(seconds=shift)
        return str(moment)

    log = Log(unix(clock("16:00")), number=number)
    log.run(clock("20:30"), get_n=9000, getbatch_n=50)
    log.say(PRESSURE, "W")
    log.run(clock("20:33"), get_n=9000, getbatch_n=50)
    log.say(BROKEN, "E")
    log.run(clock("20:36"), get_n=9000, getbatch_n=50, err_getbatch_n=20)
    log.say(LOST, "E")
    log.run(clock("20:37"))
    log.say(DROPPED, "W")
    log.run(clock("21:00"), get_n=9000, getbatch_n=50, err_getbatch_n=20)
    return log.run(clock("22:30"))


def one(found: StorageReport, id_: str) -> DaemonRow:
    """The row of one daemon."""
    (row,) = (row for row in found.rows if row.id == id_)
    return row


def test_calm_storage_is_not_blamed(tmp_path: Path) -> None:
    """Daemons whose errors go on as before are calm, and nothing is recommended."""
    found = report(tmp_path, [calm("proxy"), calm(), calm(number=2)], WINDOW, DEATH)

    assert (found.side, found.erring, found.chain, found.recommendations) == ("calm", (), (), ())
    assert found.window.compared
    assert all(row.covers for row in found.rows)


def test_a_target_that_fails_beside_calm_proxies_is_the_target_side(tmp_path: Path) -> None:
    """One of three targets failed: it is named, and how many did."""
    logs = [calm("proxy"), calm(), failing(2), calm(number=3)]

    found = report(tmp_path, logs, WINDOW, DEATH)

    assert (found.side, found.erring) == ("target", ("ais-target-2",))
    assert "1 of 3 targets (ais-target-2)" in found.summary
    assert {advice.side for advice in found.recommendations} == {"storage", "client"}


def test_the_chain_cites_the_line_of_each_link(tmp_path: Path) -> None:
    """Pressure, broken stream, lost objects, dropped ones, failed batches, in the order they came in."""
    log = failing()
    worker = Link("the loader raised AISBatchLoaderError", "error-1-0.out", 812)
    daemons = [calm("proxy"), log]
    span = (unix(WINDOW[0]), unix(WINDOW[1]))

    found = assess(read(tmp_path, *daemons), span, unix(DEATH), (worker,))

    assert [log.lines[link.line - 1].split(" ", 2)[2] for link in found.chain[:4]] == [
        PRESSURE,
        BROKEN,
        LOST,
        DROPPED,
    ]
    assert [int(link.at or 0) for link in found.chain[:4]] == [
        unix(at(clock)) for clock in ("20:30", "20:33", "20:36", "20:37")
    ]
    assert "length 0" in found.chain[2].text
    assert "err.getbatch.n" in found.chain[4].text
    assert found.chain[5] == worker


@pytest.mark.parametrize("missing", [PRESSURE, BROKEN, DROPPED])
def test_a_link_that_was_not_seen_is_not_claimed(tmp_path: Path, missing: str) -> None:
    """A chain with a hole stays a chain with a hole."""
    log = failing()
    log.lines = [line.replace(missing, "nothing") for line in log.lines]

    found = report(tmp_path, [calm("proxy"), log], WINDOW, DEATH)

    assert len(found.chain) == 4
    assert not any(log.lines[link.line - 1].endswith("nothing") for link in found.chain)


def test_pressure_that_comes_after_the_failure_is_no_cause(tmp_path: Path) -> None:
    """A cause cannot be later than its effect."""
    log = daemon().run(at("20:20"), get_n=9000)
    log.say(LOST, "E")
    log.run(at("20:40"), get_n=9000).say(PRESSURE, "W")
    log.run(at("21:00"), get_n=9000).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], WINDOW, DEATH)

    assert [log.lines[link.line - 1].endswith(LOST) for link in found.chain] == [True]


def test_errors_of_proxies_alone_are_the_proxy_layer(tmp_path: Path) -> None:
    """Proxies that cannot route, and calm targets."""
    proxy = daemon("proxy").run(at("20:00"), get_n=9000)
    proxy.run(at("21:00"), get_n=9000, err_get_n=400).run(at("22:30"))

    found = report(tmp_path, [proxy, calm("proxy", 2), calm(), calm(number=2)], WINDOW, DEATH)

    assert (found.side, found.erring) == ("proxy", ("ais-proxy-1",))
    assert one(found, "ais-proxy-1").error_rate == pytest.approx(400 * 20 / (9000 * 21))
    assert one(found, "ais-proxy-1").error_rate_before == 0.0


def test_bare_counters_without_the_proxies_do_not_name_a_layer(tmp_path: Path) -> None:
    """Failed GETs at a target may come from the proxies; their logs are asked for."""
    log = daemon().run(at("20:00"), get_n=9000).run(at("21:00"), get_n=9000, err_get_n=400).run(at("22:30"))

    found = report(tmp_path, [log], WINDOW, DEATH)

    assert found.side == "unknown"
    assert any("proxies' logs" in step for step in found.next_steps)


def test_clients_that_died_do_not_make_the_storage_guilty(tmp_path: Path) -> None:
    """Answers that could not be written after the job's death are its consequence."""
    log = daemon().run(at("20:59"), get_n=9000)
    log.run(at("21:02"), get_n=10, err_http_write_n=500)
    log.say(DROPPED, "W")
    log.run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], (WINDOW[0], at("21:30")), DEATH)

    assert (found.side, found.erring, found.chain) == ("calm", (), ())


def test_failures_at_their_usual_rate_tell_nothing(tmp_path: Path) -> None:
    """Missing objects all day long, and dropped ones too, are not about this window."""
    log = daemon()
    for hour in range(16, 21):
        for minute in range(0, 60, 10):
            log.run(at(f"{hour}:{minute:02}"), get_n=9000, err_get_n=300)
            log.say(DROPPED, "W")
    log.run(at("21:00"), get_n=9000, err_get_n=300).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], WINDOW, DEATH)

    assert (found.side, found.erring, found.chain) == ("calm", (), ())
    assert [pattern.usual for pattern in one(found, "ais-target-1").patterns] == [True]


def test_a_load_that_grows_brings_its_errors_along(tmp_path: Path) -> None:
    """Twenty times the requests with the same share of errors is no failure."""
    log = daemon().run(at("20:00"), get_n=1000, err_get_n=5).run(at("21:00"), get_n=20000, err_get_n=100)

    found = report(tmp_path, [calm("proxy"), log.run(at("22:30"))], WINDOW, DEATH)

    assert found.side == "calm"


def test_pressure_alone_is_no_failure(tmp_path: Path) -> None:
    """A strained target that fails nothing is neither calm nor guilty."""
    log = daemon().run(at("20:30"), get_n=9000)
    log.say(PRESSURE, "W")
    log.run(at("21:00"), get_n=9000).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], WINDOW, DEATH)

    assert (found.side, found.erring, len(found.chain)) == ("unknown", (), 1)
    assert "strain" in found.summary


def test_a_daemon_that_restarts_in_the_window_is_evidence(tmp_path: Path) -> None:
    """The next file begins inside the window: a restart; the old file still counts."""
    old = failing()
    old.lines = old.lines[: next(i for i, line in enumerate(old.lines) if DROPPED in line) + 1]
    new = daemon(number=2, began="20:50").run(at("21:00"), get_n=10).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), old, new], WINDOW, DEATH)

    row = one(found, "ais-target-2")
    assert (row.restarted, row.covers, row.files) == (True, True, (old.name, new.name))
    assert (row.file, row.restarts[0].file, row.restarts[0].line) == (old.name, new.name, 1)
    assert (found.side, len(found.chain)) == ("target", 5)


def test_a_restart_alone_accuses_nobody(tmp_path: Path) -> None:
    """Maintenance in the window is said, not blamed."""
    old = daemon().run(at("20:20"), get_n=9000)
    new = daemon(began="20:25").run(at("21:00"), get_n=9000).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), old, new], WINDOW, DEATH)

    assert found.side == "unknown"
    assert "ais-target-1 restarted" in found.summary


@pytest.mark.parametrize("header", ["Rotated", None])
def test_a_rotated_log_is_no_restart(tmp_path: Path, header: str | None) -> None:
    """The first line says so, or the counters go on from where they stood."""
    old = daemon().run(at("20:20"), get_n=9000)
    new = Log(unix(at("20:20")), header=header, counters=dict(old.counters))
    new.run(at("21:00"), get_n=9000).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), old, new], WINDOW, DEATH)

    assert (found.side, one(found, "ais-target-1").restarted) == ("calm", False)
    assert one(found, "ais-target-1").deltas[0].grew == 9000 * 20


def test_counters_that_fall_inside_a_file_are_a_restart(tmp_path: Path) -> None:
    """A log that goes on through a restart shows it in its counters."""
    log = daemon().run(at("20:20"), get_n=9000)
    log.counters = {}
    log.run(at("21:00"), get_n=9000).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], WINDOW, DEATH)

    (restart,) = one(found, "ais-target-1").restarts
    assert log.lines[(restart.line or 0) - 1].endswith("{get.n:9000,up.ns:1}")


def test_the_newest_file_alone_does_not_cover_the_window(tmp_path: Path) -> None:
    """Minutes after a restart say nothing about the hour before; all files are asked for."""
    new = daemon(began="21:10").run(at("22:30"), get_n=10)

    found = report(tmp_path, [calm("proxy"), calm(number=2), new], WINDOW, DEATH)
    alone = report(tmp_path, [new], WINDOW, DEATH)

    assert (found.side, alone.side) == ("unknown", "unknown")
    assert not one(alone, "ais-target-1").covers
    assert any("all log files of ais-target-1" in step for step in alone.next_steps)


@pytest.mark.parametrize("hours", [-7, -1, 1, 8])
def test_clocks_that_are_whole_hours_apart_are_put_together(tmp_path: Path, hours: int) -> None:
    """The requests stop hours from the job's death by the clocks: that is the offset."""
    found = report(tmp_path, [failing(hours=hours)], WINDOW, DEATH)

    assert (found.window.compared, found.window.shift_s) == (True, hours * 3600)
    assert found.window.start == unix(WINDOW[0]) + hours * 3600
    assert f"{abs(hours)} hour" in found.window.how
    assert (found.side, len(found.chain)) == ("target", 5)


def test_without_a_death_the_zones_are_not_compared(tmp_path: Path) -> None:
    """Failures at another hour could be this job's: the storage is neither calm nor guilty."""
    shifted = report(tmp_path, [failing(hours=-3)], WINDOW)

    assert (shifted.side, shifted.window.compared) == ("unknown", False)
    assert "not compared" in shifted.window.how
    assert any("time zones" in step for step in shifted.next_steps)


def test_requests_that_never_stop_are_no_anchor(tmp_path: Path) -> None:
    """Other jobs go on: nothing shows whether the clocks agree, and the summary says so."""
    busy = [failing(), daemon(number=3).run(at("22:30"), get_n=9000)]

    found = report(tmp_path, busy, WINDOW, DEATH)

    assert not found.window.compared
    assert "if the clocks agree" in found.summary


def test_logs_that_end_with_the_job_are_no_anchor(tmp_path: Path) -> None:
    """The end of a log is no stop of the requests."""
    found = report(tmp_path, [daemon().run(at("21:00"), get_n=9000)], WINDOW, DEATH)

    assert not found.window.compared


def test_a_window_after_midnight_is_found_in_yesterdays_file(tmp_path: Path) -> None:
    """The same time of day comes twice; only the second one is in the window."""
    log = Log(unix("2025-11-18 20:00:00"))
    log.run("2025-11-18 20:30:00", get_n=9000).say("shared-dm: quiet", "W")
    log.run("2025-11-19 20:30:00", get_n=9000).say(LOST, "E")
    number = len(log.lines)
    log.run(DEATH, get_n=9000).run("2025-11-19 22:30:00")
    proxy = calm("proxy")

    found = report(tmp_path, [proxy, log], WINDOW, DEATH)
    day_before = report(
        tmp_path, [proxy, log], ("2025-11-18 20:10:00", "2025-11-18 21:00:00"), "2025-11-18 21:00:00"
    )

    assert [(link.line, int(link.at or 0)) for link in found.chain] == [(number, unix(at("20:30")))]
    assert (day_before.chain, day_before.erring) == ((), ())


def test_without_markers_the_year_comes_from_the_window(tmp_path: Path) -> None:
    """Name and window give the date; that no zone is stated is said."""
    log = failing()
    log.lines = [line for line in log.lines[1:] if "=====" not in line]

    found = report(tmp_path, [log], WINDOW, DEATH)

    assert (found.side, found.chain[0].at) == ("target", pytest.approx(unix(at("20:30")), abs=1))
    assert any("no marker" in complaint for complaint in found.complaints)


def test_too_little_before_the_window_leaves_counters_open(tmp_path: Path) -> None:
    """Nothing to compare with is not the same as calm."""
    log = daemon(began="19:55").run(at("21:00"), get_n=9000, err_get_n=100).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], WINDOW, DEATH)

    assert found.side == "unknown"
    assert any("earlier logs of ais-target-1" in step for step in found.next_steps)


def test_a_daemon_that_was_silent_through_the_window_does_not_cover_it(tmp_path: Path) -> None:
    """The old file ended before, the new one began after: it may have been down."""
    old = daemon().run(at("19:00"), get_n=9000)
    new = daemon(began="21:10").run(at("22:30"), get_n=9000)

    found = report(tmp_path, [calm("proxy"), calm(number=2), old, new], WINDOW, DEATH)

    assert (found.side, one(found, "ais-target-1").covers) == ("unknown", False)
    assert any("silent through the window" in complaint for complaint in found.complaints)


def test_without_a_window_no_side_is_named(tmp_path: Path) -> None:
    """Failures somewhere in days of logs are told, not tied to the job."""
    found = report(tmp_path, [failing()], None)

    assert (found.side, found.erring) == ("unknown", ("ais-target-2",))
    assert "failures are logged by ais-target-2" in found.summary


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1e30, 1e30])
def test_moments_that_are_none_are_survived(tmp_path: Path, number: float) -> None:
    """A window or a death out of this world gives an answer that names nobody."""
    daemons = read(tmp_path, failing())

    assert assess(daemons, (number, number), number).side == "unknown"


def test_no_logs_at_all_say_how_to_fetch_them() -> None:
    """Nothing is known of the storage; the commands can be pasted."""
    found = assess(Daemons(), (0.0, 1.0), None)

    assert found.side == "unknown"
    assert any("ais log get cluster" in step for step in found.next_steps)


def test_a_log_that_cannot_be_placed_forbids_to_call_the_storage_calm(tmp_path: Path) -> None:
    """What could not be read may be what failed."""
    files = [calm("proxy").write(tmp_path), calm().write(tmp_path)]
    lost = calm(number=2)
    lost.lines = [line for line in lost.lines[1:] if "=====" not in line]

    found = assess(
        read_daemons([*files, lost.write(tmp_path, "ais-target-2.log")]),
        (unix(WINDOW[0]), unix(WINDOW[1])),
        unix(DEATH),
    )

    assert found.side == "unknown"
    assert any("of which day" in complaint for complaint in found.complaints)


def test_error_files_do_not_count_lines_twice(tmp_path: Path) -> None:
    """An ERROR file repeats the lines of its INFO file."""
    log = failing()
    files = [log.write(tmp_path), log.write(tmp_path, log.name.replace("INFO", "ERROR"))]

    found = assess(read_daemons(files), (unix(WINDOW[0]), unix(WINDOW[1])), unix(DEATH))

    assert [pattern.count for pattern in one(found, "ais-target-2").patterns] == [1, 1, 1, 1]
    assert {citation.file for citation in found.citations} == {log.name}


def test_resets_that_recover_are_noise(tmp_path: Path) -> None:
    """Idle connections that the storage closes cost some answers an hour, and nothing else."""
    log = daemon().run(at("20:00"), get_n=9000)
    log.counters["err.http.write.n"] = 6
    log.run(at("21:00"), get_n=9000).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], WINDOW, DEATH)

    assert (found.side, found.erring, found.recommendations) == ("calm", (), ())


def test_lost_clients_without_a_death_stay_open(tmp_path: Path) -> None:
    """Whether answers broke before or after the job died decides; without its death nothing does."""
    log = daemon().run(at("20:30"), get_n=9000)
    log.run(at("21:00"), get_n=9000, err_http_write_n=50).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], WINDOW)

    assert (found.side, found.erring) == ("unknown", ())


def test_lost_clients_before_the_death_are_a_failure(tmp_path: Path) -> None:
    """Answers that broke while the job still ran are the storage's."""
    log = daemon().run(at("20:30"), get_n=9000)
    log.run(at("20:51"), get_n=9000, err_http_write_n=50).run(at("21:00"), get_n=9000).run(at("22:30"))

    found = report(tmp_path, [calm("proxy"), log], WINDOW, DEATH)

    assert (found.side, found.erring) == ("target", ("ais-target-1",))


@pytest.mark.parametrize("seed", range(12))
def test_garbled_logs_are_assessed_all_the_same(tmp_path: Path, seed: int) -> None:
    """Whatever bytes are overwritten or lines lost, there is an answer, and its citations are real."""
    chance = random.Random(seed)
    files = []
    for log in (calm("proxy"), failing(), calm(number=3)):
        kept = [line for line in log.lines if chance.random() > 0.1]
        data = bytearray("\n".join(kept).encode())
        for _ in range(len(data) // 200):
            data[chance.randrange(len(data))] = chance.choice(b"0123456789:IWE .\n\x00\xff")
        path = tmp_path / log.name
        path.write_bytes(data)
        files.append((log.name, path))

    found = assess(read_daemons(files), (unix(WINDOW[0]), unix(WINDOW[1])), unix(DEATH))

    assert found.summary
    for citation in found.citations:
        lines = (tmp_path / str(citation.file)).read_bytes().split(b"\n")
        assert 1 <= (citation.line or 0) <= len(lines)
