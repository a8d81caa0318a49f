# SPDX-License-Identifier: GPL-2.0
"""Whether a thread of this process is asleep in a system call on a socket."""
import platform

NUMBERS = {"recvfrom": "207", "splice": "76"} if platform.machine() == "aarch64" else {"recvfrom": "45", "splice": "275"}


def is_asleep_in(thread, call):
    with open(f"/proc/self/task/{thread.native_id}/syscall", encoding="ascii") as file:
        return file.read().split()[0] == NUMBERS[call]
