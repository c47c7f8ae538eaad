"""Who else uses the machine: figures of /proc, so that a result can say under what conditions it was measured."""

import os
import resource
import time

TICKS = os.sysconf("SC_CLK_TCK")
QUIET_CORES = 0.15  # others may use so much


def busy_seconds():
    """CPU seconds of all processes together since the machine started."""
    with open("/proc/stat", encoding="utf-8") as lines:
        fields = [int(value) for value in lines.readline().split()[1:9]]
    user, nice, system, _, _, interrupts, soft_interrupts, steal = fields
    return (user + nice + system + interrupts + soft_interrupts + steal) / TICKS


def own_seconds():
    """CPU seconds of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def process_age():
    """Seconds since this process was started."""
    with open("/proc/self/stat", encoding="utf-8") as text:
        fields = text.read().rsplit(")", 1)[1].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / TICKS


def peak_bytes():
    """Most memory that this process held so far. getrusage would count what its parent held before it became this program."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class Meter:
    """Cores that others used since it was made. Children count as our own once they were waited for."""

    def __init__(self):
        self.begin, self.busy, self.own = time.monotonic(), busy_seconds(), own_seconds()

    def foreign(self):
        seconds = max(time.monotonic() - self.begin, 1e-9)
        return max(0.0, (busy_seconds() - self.busy - (own_seconds() - self.own)) / seconds)


def wait(limit):
    """Waits until the others leave the machine alone, `limit` seconds at most; returns the seconds waited."""
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        meter = Meter()
        time.sleep(0.25)
        if meter.foreign() < QUIET_CORES:
            break
    return time.monotonic() - begin
