// SPDX-License-Identifier: GPL-2.0
/* This file, and no other, creates the tracepoints of trace.h. */
#define CREATE_TRACE_POINTS
#include "core/trace.h"
