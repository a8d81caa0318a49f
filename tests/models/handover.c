// SPDX-License-Identifier: GPL-2.0
/*
 * The hand-over between the ring and TCP, in every order of the steps of senders, readers, TCP
 * and the module's works. These rules must hold:
 *   - A reader gets the bytes that the senders have sent, in that order and each once. End of
 *     file comes after the last byte.
 *   - No thread sleeps while it has work to do and no other thread is about to wake it. A
 *     time-out does not count as a wake-up, and neither does the application's next call.
 *   - Every run ends, and un-pairing ends with it.
 *   - A reader that closes before it has read all bytes sends a reset.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handover.h"

struct state S;
const struct scenario *cfg;

#define ANY	(BLOCKING | NONBLOCKING | SPECIAL)

static const struct scenario scenarios[] = {
#define SOUND(n)		.name = "handover/" n
	{ SOUND("stream"), .messages = { 3, 2 }, .kinds = ANY, .want = 2 },
	{ SOUND("spill"), .messages = { 4, 1 }, .kinds = BLOCKING | NONBLOCKING, .want = 3 },
	{ SOUND("held"), .messages = { 1, 2 }, .kinds = BLOCKING | HELD, .want = 2 },
	{ SOUND("pages"), .messages = { 1, 2 }, .kinds = BLOCKING | SPECIAL, .want = 2,
	  .idle = true },
	{ SOUND("senders"), .messages = { 2 }, .second = 2, .kinds = ANY, .want = 2 },
	{ SOUND("senders_wait"), .messages = { 3 }, .second = 1, .kinds = BLOCKING, .want = 2 },
	{ SOUND("readers"), .messages = { 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 2,
	  .two_readers = true },
	{ SOUND("startup"), .messages = { 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 1,
	  .two_readers = true, .startup = true },
	{ SOUND("unpair"), .messages = { 3 }, .kinds = ANY, .want = 2, .drop = true },
	{ SOUND("unpair_next"), .messages = { 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 1,
	  .drop = true },
	{ SOUND("unpair_waitall"), .messages = { 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 2,
	  .waitall = true, .drop = true },
	{ SOUND("unpair_pages"), .messages = { 1, 1 }, .kinds = BLOCKING, .want = 1,
	  .drop = true, .idle = true },
	{ SOUND("close"), .messages = { 3, 1 }, .kinds = ANY, .want = 1, .close = true },
	{ SOUND("reset"), .messages = { 2, 1 }, .kinds = ANY, .want = 2, .reset = true },

	{ SOUND("full/readers"), .messages = { 1, 2 }, .kinds = BLOCKING | SPECIAL, .want = 2,
	  .two_readers = true, .full = true },
	{ SOUND("full/unpair"), .messages = { 3, 1 }, .kinds = ANY, .want = 2, .drop = true,
	  .full = true },
	{ SOUND("full/unpair_readers"), .messages = { 1, 1 }, .kinds = BLOCKING, .want = 1,
	  .two_readers = true, .drop = true, .full = true },
	{ SOUND("full/senders"), .messages = { 2, 1 }, .second = 2, .kinds = ANY, .want = 3,
	  .full = true },
	{ SOUND("full/reset"), .messages = { 3, 1 }, .kinds = ANY, .want = 2, .reset = true,
	  .full = true },

#define MUTATION(n, m, w)	.name = "handover/mutation/" n, .mutation = m, .why = w
	{ MUTATION("seq_rule_skipped", SEQ_RULE_SKIPPED, "is due"),
	  .messages = { 1, 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 2 },
	{ MUTATION("seq_not_moved", SEQ_NOT_MOVED, "is due"),
	  .messages = { 1, 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 2 },
	{ MUTATION("publish_before_copy", PUBLISH_BEFORE_COPY, "is due"),
	  .messages = { 1, 1 }, .kinds = BLOCKING, .want = 1 },
	{ MUTATION("wake_before_publish", WAKE_BEFORE_PUBLISH, "something to read"),
	  .messages = { 1 }, .kinds = BLOCKING, .want = 1 },
	{ MUTATION("no_look_after_publish", NO_LOOK_AFTER_PUBLISH, "without a reset"),
	  .messages = { 2 }, .kinds = BLOCKING, .want = 1, .close = true },
	{ MUTATION("ready_ignored", READY_IGNORED, "end of file after"),
	  .messages = { 1 }, .kinds = BLOCKING, .want = 1, .startup = true },
	{ MUTATION("ready_in_turn", READY_IN_TURN, "end of file after"),
	  .messages = { 1, 1 }, .kinds = BLOCKING, .want = 1,
	  .two_readers = true, .startup = true },
	{ MUTATION("ready_by_queues", READY_BY_QUEUES, "end of file after"),
	  .messages = { 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 1,
	  .two_readers = true, .startup = true },
	{ MUTATION("held_bytes_ignored", HELD_BYTES_IGNORED, "holds back"),
	  .messages = { 1, 1 }, .kinds = BLOCKING | HELD, .want = 1 },
	{ MUTATION("wish_after_look", WISH_AFTER_LOOK, "the sender sleeps"),
	  .messages = { 3 }, .kinds = BLOCKING, .want = 2 },
	{ MUTATION("wish_taken_back", WISH_TAKEN_BACK, "the sender 2 sleeps"),
	  .messages = { 3 }, .second = 1, .kinds = BLOCKING, .want = 2 },
	{ MUTATION("writer_not_woken", WRITER_NOT_WOKEN, "the sender sleeps"),
	  .messages = { 3 }, .kinds = BLOCKING, .want = 2 },
	{ MUTATION("fin_before_ring", FIN_BEFORE_RING, "end of file after"),
	  .messages = { 1, 1 }, .kinds = BLOCKING, .want = 1 },
	{ MUTATION("tcp_not_capped", TCP_NOT_CAPPED, "is due"),
	  .messages = { 1, 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 2 },
	{ MUTATION("ring_in_front", RING_IN_FRONT, "is due"),
	  .messages = { 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 1 },
	{ MUTATION("no_turn", NO_TURN, "end of file after"),
	  .messages = { 1, 1, 1 }, .kinds = BLOCKING | SPECIAL, .want = 1,
	  .two_readers = true },
	{ MUTATION("queued_after_look", QUEUED_AFTER_LOOK, "something to read"),
	  .messages = { 1 }, .kinds = BLOCKING, .want = 1 },
	{ MUTATION("closed_in_append", CLOSED_IN_APPEND, "end of file after"),
	  .messages = { 1, 1 }, .kinds = BLOCKING, .want = 1, .drop = true },
	{ MUTATION("detach_with_bytes", DETACH_WITH_BYTES, "end of file after"),
	  .messages = { 1, 1 }, .kinds = BLOCKING, .want = 1, .drop = true },
	{ MUTATION("detach_in_call", DETACH_IN_CALL, "wants all returns"),
	  .messages = { 1, 1 }, .kinds = BLOCKING, .want = 2,
	  .waitall = true, .drop = true },
	{ MUTATION("detach_not_told", DETACH_NOT_TOLD, "an end that is gone"),
	  .messages = { 1 }, .kinds = BLOCKING, .want = 1, .drop = true },
	{ MUTATION("pages_taken_in_append", PAGES_TAKEN_IN_APPEND, "lost its pages"),
	  .messages = { 1 }, .kinds = BLOCKING, .want = 1, .idle = true },
	{ MUTATION("close_after_look", CLOSE_AFTER_LOOK, "without a reset"),
	  .messages = { 2 }, .kinds = BLOCKING, .want = 1, .close = true },
	{ MUTATION("close_without_reset", CLOSE_WITHOUT_RESET, "without a reset"),
	  .messages = { 1, 1 }, .kinds = BLOCKING, .want = 1, .close = true },
};

static const char *const actors[ACTORS] = {
	"sender", "reader", "tcp", "shutdown", "sender 2", "reader 2",
	"drop", "drop 2", "idle", "reset",
};

static bool takes_part(unsigned int actor)
{
	switch (actor) {
	case SENDER_2: return cfg->second;
	case READER_2: return cfg->two_readers;
	case DROP_READER: case DROP_SENDER: return cfg->drop;
	case IDLE: return cfg->idle;
	case RESET: return cfg->reset || cfg->close;
	default: return true;
	}
}

static enum step step(unsigned int actor)
{
	static enum step (*const steps[ACTORS])(struct thread *) = {
		sender, reader, tcp, shut, sender, reader,
		drop_reader, drop_sender, idle, reset,
	};

	return takes_part(actor) ? steps[actor](&S.t[actor]) : BLOCKED;
}

static const char *actor_name(unsigned int actor)
{
	return actors[actor];
}

/* True if a reader would find bytes in the present state. */
static bool readable(void)
{
	return S.rcv_nxt != S.copied_seq || (ring_bytes() && S.seq <= S.copied_seq);
}

static void check(void)
{
	if (ring_bytes() > RING)
		violated("the ring holds %u bytes, and its size is %u", ring_bytes(), RING);
	if (ring_bytes() && !S.pages)
		violated("a ring with %u bytes has lost its pages", ring_bytes());
}

static bool sleeps(unsigned int actor)
{
	return S.t[actor].asleep && !S.t[actor].woken;
}

static void sender_is_awake(unsigned int i)
{
	if (sleeps(i) && (ring_bytes() <= RING / 2 || S.tx_closed || S.rx_closed))
		violated("the %s sleeps, and nobody wakes it: %u bytes in the ring",
			 actors[i], ring_bytes());
}

static void reader_is_awake(unsigned int i)
{
	if (sleeps(i) && (readable() || S.b_done || S.b_err))
		violated("the %s sleeps, and nobody wakes it: there is something to read",
			 actors[i]);
	if (sleeps(i) && !S.b_attached)
		violated("the %s sleeps in an end that is gone", actors[i]);
}

static void quiet(void)
{
	sender_is_awake(SENDER);
	sender_is_awake(SENDER_2);
	reader_is_awake(READER);
	reader_is_awake(READER_2);
	if (ring_bytes() && S.seq > S.snd_nxt && !S.a_err && !S.b_closed)
		violated("the ring waits behind bytes that TCP holds back");
}

static void end(void)
{
	for (unsigned int i = 0; i < ACTORS; i++) {
		if (!takes_part(i) || S.t[i].pc == PC_DONE || i == TCP || i == RESET)
			continue;
		violated("the %s is stuck: %u of %u bytes read", actors[i], S.consumed, S.accepted);
	}
	if (cfg->close && !S.reset && S.consumed != S.accepted)
		violated("the reader went after %u of %u bytes, without a reset",
			 S.consumed, S.accepted);
	if (S.dropped && (S.a_attached || S.b_attached))
		violated("un-pairing does not end");
	if (S.failed && !cfg->reset)
		violated("a reader got an error");
}

static void show(void)
{
	printf("seq %u, ring [%u, %u), TCP %u/%u/%u", S.seq, S.tail, S.head,
	       S.copied_seq, S.rcv_nxt, S.write_seq);
}

int main(int argc, char **argv)
{
	struct model m = {
		.state = &S, .step = step,
		.thread_name = actor_name,
		.check = check, .quiet = quiet, .end = end, .show = show,
	};
	int bad = 0;

	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
		cfg = &scenarios[i];
		m.name = cfg->name;
		m.threads = 0;
		for (unsigned int a = 0; a < ACTORS; a++)
			if (takes_part(a))
				m.threads = a + 1;
		m.size = offsetof(struct state, t) + m.threads * sizeof(*S.t);
		if (argc > 1 ? strcmp(argv[1], cfg->name) : cfg->full && !getenv("TEST_FULL"))
			continue;
		memset(&S, 0, sizeof(S));
		S.a_attached = S.b_attached = 1;
		S.old_callers = cfg->startup;
		bad += cfg->mutation ? !expect_found(&m, cfg->why, argc > 1) : !expect_sound(&m);
	}
	return !!bad;
}
