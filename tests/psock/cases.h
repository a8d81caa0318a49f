/* SPDX-License-Identifier: GPL-2.0 */
/* X(name) for each case, in the order in which they run; case_name() is in
 * bytes.c, wait.c, ends.c or switch.c.
 */
#ifndef CASES_H
#define CASES_H

#define CASES(X) \
	X(bytes_1) \
	X(bytes_small) \
	X(bytes_odd) \
	X(bytes_1m) \
	X(bytes_16m) \
	X(bytes_v6) \
	X(pipe_one_slot) \
	X(chunk_one_byte) \
	X(pipe_nearly_full) \
	X(pipe_no_reader) \
	X(mixed_queues) \
	X(read_and_splice) \
	X(threads) \
	X(onward) \
	X(pipe_outlives_socket) \
	X(window) \
	X(block) \
	X(nonblock) \
	X(flag_nonblock) \
	X(signal) \
	X(fin) \
	X(fin_asleep) \
	X(reset) \
	X(unmap_asleep) \
	X(both_ends) \
	X(own_queue) \
	X(parser_gives_up) \
	X(queued_before) \
	X(unmap_between_records) \
	X(emptied_messages) \
	X(fin_positions) \
	X(fin_in_record) \
	X(fin_redirected) \
	X(reset_asleep) \
	X(unmap_again) \
	X(unmap_flowing) \
	X(io_uring) \
	X(listener) \
	X(counters) \
	X(kmalloc_is_copied) \
	X(switch) \
	X(ftrace_disabled) \
	X(tracepoint) \
	X(memory_pressure)

#define X(name) void case_##name(void);
CASES(X)
#undef X
/* For a kernel without the module, and only there. */
void case_stock_loses(void);

#endif
