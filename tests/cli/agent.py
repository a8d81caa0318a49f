#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""agent.py PIN: has a pinned BPF map open until its standard input ends; says "holding"."""
import ctypes
import os
import sys

SYS_BPF, BPF_OBJ_GET = {"x86_64": 321, "aarch64": 280}[os.uname().machine], 7

path = ctypes.create_string_buffer(sys.argv[1].encode())
attr = ctypes.create_string_buffer(16)
ctypes.memmove(attr, ctypes.c_uint64(ctypes.addressof(path)).value.to_bytes(8, "little"), 8)
if ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF, BPF_OBJ_GET, attr, 16) < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("holding", flush=True)
sys.stdin.read()
