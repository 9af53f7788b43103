"""The clocks that logs are written with. Times are seconds since the start of the incident."""

from datetime import datetime, timedelta, timezone

START = datetime(2026, 3, 14, 2, 0, 0, tzinfo=timezone.utc)


def at(t: float) -> datetime:
    return START + timedelta(seconds=t)


def unix(t: float) -> float:
    return START.timestamp() + t


def iso(t: float) -> str:
    return at(t).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def slurm(t: float) -> str:
    return at(t).strftime("%Y-%m-%dT%H:%M:%S")


def seconds(t: float) -> str:
    return at(t).strftime("%Y-%m-%d %H:%M:%S")


def python(t: float) -> str:
    return at(t).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def block(t: float) -> str:
    return at(t).strftime("%Y-%m-%d_%H:%M:%S")


def glog(t: float) -> str:
    """Month and day without a year, as C++ lines have it; nine digits of a second."""
    moment = at(t)
    return f"{moment.month}{moment.day:02d} {moment.strftime('%H:%M:%S.%f')}123"


def glog_python(t: float) -> str:
    return at(t).strftime("%m%d %H:%M:%S.%f")


def syslog(t: float) -> str:
    return at(t).strftime("%b %d %H:%M:%S")


def ctime(t: float) -> str:
    return at(t).strftime("%a %b %d %H:%M:%S %Y")
