// SPDX-License-Identifier: GPL-2.0
/* The one place where the tracepoints of trace.h are created. */
#define CREATE_TRACE_POINTS
#include "core/trace.h"
