// SPDX-License-Identifier: GPL-2.0
/*
 * The ring of module/core/ring.h with one producer, one consumer and one watcher, which only
 * reads. Each step makes one access to shared variables. The functions are those of the header:
 * all but ring_len() make one such access, which is counted.
 *
 * This model does not see reordering by a CPU: every access takes effect at once. litmus/ has
 * the tests for that.
 */
#include <stdio.h>
#include <string.h>

#include "explore.h"

typedef uint32_t u32;
typedef int32_t s32;
typedef uint16_t u16;
typedef uint8_t u8;

#define ____cacheline_aligned
#define smp_load_acquire(p)		(explore_shared++, *(p))
#define smp_store_release(p, v)		((void)(explore_shared++, *(p) = (v)))
#define READ_ONCE(x)			SHARED(x)
#define WRITE_ONCE(x, v)		((void)(SHARED(x) = (v)))
#define min(a, b) ({ __typeof__(a) a_ = (a); __typeof__(b) b_ = (b); a_ < b_ ? a_ : b_; })
#define RING_PAGE_SHIFT			1

#include "../../module/core/ring.h"

#define SIZE	4U
#define PAGES	(SIZE / RING_PAGE_SIZE)
#define FREED	0xee

enum mutation {
	NONE,
	PUBLISH_BEFORE_COPY,
	CONSUME_BEFORE_READ,
	SPACE_IGNORES_TAIL,
	PAGES_TAKEN_WITH_BYTES,
	PAGE_POPPED_WITH_BYTES,
	ARRAY_TAKEN_WITH_PAGES,
	KEEP_IGNORES_WRAP,
	REWIND_WITH_BYTES,
	WATCH_HEAD_FIRST,
	RETRACT_WHILE_READING,
	CLOSED_BEFORE_PUBLISH,
	CLOSE_AFTER_LOOK,
};

static const struct scenario {
	const char *name;
	u8 bytes;	/* through the ring */
	u8 looks;	/* how often the watcher looks */
	bool take;	/* the pages may be given back */
	bool close;	/* the consumer may close at any point */
	enum mutation mutation;
	const char *why;	/* part of the message that reports the mutation */
} scenarios[] = {
	{ "ring/stream", 8, 3, false, false, NONE, NULL },
	{ "ring/pages", 7, 1, true, false, NONE, NULL },
	{ "ring/close", 6, 1, true, true, NONE, NULL },
#define MUTATION(name) "ring/mutation/" name
	{ MUTATION("publish_before_copy"), 4, 0, false, false, PUBLISH_BEFORE_COPY, "is read as" },
	{ MUTATION("consume_before_read"), 6, 0, false, false, CONSUME_BEFORE_READ, "is read as" },
	{ MUTATION("space_ignores_tail"), 6, 0, false, false, SPACE_IGNORES_TAIL, "the ring holds" },
	{ MUTATION("pages_taken_with_bytes"), 4, 0, true, false, PAGES_TAKEN_WITH_BYTES,
	  "without pages" },
	{ MUTATION("page_popped_with_bytes"), 4, 0, true, false, PAGE_POPPED_WITH_BYTES,
	  "without a page" },
	{ MUTATION("array_taken_with_pages"), 4, 0, true, false, ARRAY_TAKEN_WITH_PAGES,
	  "are lost" },
	{ MUTATION("keep_ignores_wrap"), 7, 0, true, false, KEEP_IGNORES_WRAP, "without a page" },
	{ MUTATION("rewind_with_bytes"), 6, 0, false, false, REWIND_WITH_BYTES, "is read as" },
	{ MUTATION("watch_head_first"), 4, 1, false, false, WATCH_HEAD_FIRST, "has passed its head" },
	{ MUTATION("retract_while_reading"), 4, 0, false, true, RETRACT_WHILE_READING, "the ring holds" },
	{ MUTATION("closed_before_publish"), 4, 0, false, true, CLOSED_BEFORE_PUBLISH, "left behind" },
	{ MUTATION("close_after_look"), 4, 0, false, true, CLOSE_AFTER_LOOK, "left behind" },
};

#define CHUNK	2	/* the most bytes that either side moves at once */

static const struct scenario *cfg;

struct thread {
	u16 pc;
	u8 n, i, done, want, seen, keep;
	u32 tail;
};

static struct {
	struct thread producer, consumer, watcher;
	struct ring ring;
	void *pages[PAGES];
	u8 bytes[PAGES][RING_PAGE_SIZE];
	u8 closed;	/* END_RX_CLOSED */
	u8 unread;	/* the consumer found bytes when it closed: a reset */
	u8 was_empty, was_used;		/* since the watcher began its present look */
} S;

/* The running step's access to ring.filled, which no other thread of the model reads. */
#define UNSEEN()	((void)(explore_shared--))

static u32 in_ring(void)
{
	return S.ring.head - S.ring.tail;
}

static u32 keep(struct thread *t)
{
	const u32 at = ring_at(&S.ring), spare = t->seen == 1 ? 0 : RING_PAGE_SIZE;
	u32 n = ring_keep(&S.ring, spare);

	if (cfg->mutation == PAGE_POPPED_WITH_BYTES)
		return 0;
	if (cfg->mutation == KEEP_IGNORES_WRAP && n == SIZE)
		return (at + RING_PAGE_SIZE - 1) & ~(RING_PAGE_SIZE - 1);
	return n;
}

/* The caller has popped the pages, and frees them and the array. */
static void take_array(void)
{
	const u32 filled = S.ring.filled;
	void **pages;

	if (cfg->mutation == PAGES_TAKEN_WITH_BYTES) {
		S.ring.pages = NULL;
		S.ring.filled = 0;
		return;
	}
	pages = cfg->mutation == ARRAY_TAKEN_WITH_PAGES ? ring_take_pages(&S.ring) :
							  ring_take_array(&S.ring);
	if (!pages)
		return;
	UNSEEN();
	if (filled)
		violated("%u bytes of pages are lost with their array", filled);
}

static enum step producer(struct thread *t)
{
	const bool early = cfg->mutation == PUBLISH_BEFORE_COPY;
	u8 *byte;
	u32 seg;

	BEGIN;
	while (t->done < cfg->bytes) {
		if (cfg->close && cfg->mutation != RETRACT_WHILE_READING) {
			AT("tx_route: END_RX_CLOSED");
			t->seen = SHARED(S.closed);
			if (t->seen)
				break;
		}
		if (!S.ring.pages) {
			AT("ring_set_pages");
			ring_set_pages(&S.ring, S.pages, SIZE, 0);
			UNSEEN();
		}
		AT("ring_rewind");
		if (cfg->mutation == REWIND_WITH_BYTES)
			S.ring.start = S.ring.head;
		else
			ring_rewind(&S.ring);
		AT("ring_space");
		t->want = 1 + choose(min(CHUNK, cfg->bytes - t->done));
		t->n = min((u32)t->want, ring_space(&S.ring, t->want));
		if (cfg->mutation == SPACE_IGNORES_TAIL)
			t->n = t->want;
		if (!t->n) {
			AT("sks_tx_wait");
			AWAIT(in_ring() < SIZE || S.closed);
			continue;
		}
		if (t->n > ring_backed(&S.ring)) {
			AT("ring_restart");
			ring_restart(&S.ring);
		}
		while (t->n > ring_backed(&S.ring)) {
			AT("ring_add_page");
			ring_add_page(&S.ring, S.bytes[S.ring.filled / RING_PAGE_SIZE]);
		}
		if (early) {
			AT("ring_publish, before the copy");
			ring_publish(&S.ring, t->n);
		}
		for (t->i = 0; t->i < t->n; t->i++) {
			AT("ring_write_seg: a byte is written");
			byte = ring_write_seg(&S.ring, early ? t->i - t->n : t->i, &seg);
			SHARED(*byte) = t->done + t->i;
		}
		if (!early) {
			AT("ring_publish");
			ring_publish(&S.ring, t->n);
		}
		t->done += t->n;
		if (cfg->close && cfg->mutation != CLOSED_BEFORE_PUBLISH) {
			AT("tx_append: END_RX_CLOSED, after the publish");
			t->seen = SHARED(S.closed) || cfg->mutation == RETRACT_WHILE_READING;
			if (t->seen) {
				AT("tx_append: ring_len");
				t->n = min((u32)t->n, S.ring.head - SHARED(S.ring.tail));
				AT("ring_retract");
				ring_retract(&S.ring, t->n);
				t->done -= t->n;
				break;
			}
		}
		if (!cfg->take)
			continue;
		/* A holder of the producer's lock frees no page, all but one, or all. */
		AT("sks_pages_release");
		t->seen = choose(3);
		if (!t->seen)
			continue;
		if (cfg->mutation != PAGES_TAKEN_WITH_BYTES) {
			AT("ring_keep");
			t->keep = keep(t);
			while (S.ring.filled > t->keep) {
				AT("ring_pop_page");
				memset(ring_pop_page(&S.ring), FREED, RING_PAGE_SIZE);
			}
		}
		if (t->seen == 1) {
			AT("ring_take_array");
			take_array();
		}
	}
	END;
}

static enum step consumer(struct thread *t)
{
	const bool early = cfg->mutation == CONSUME_BEFORE_READ;
	u8 *byte;
	u32 seg;

	BEGIN;
	while (t->done < cfg->bytes) {
		if (cfg->close) {
			AT("the application reads on, or closes");
			t->seen = choose(2);
			if (t->seen)
				break;
		}
		AT("ring_used");
		AWAIT(in_ring() || cfg->close);
		t->want = 1 + choose(CHUNK);
		t->n = min((u32)t->want, ring_used(&S.ring, t->want));
		if (!t->n)
			break;
		if (early) {
			AT("ring_consume, before the read");
			ring_consume(&S.ring, t->n);
		}
		for (t->i = 0; t->i < t->n; t->i++) {
			AT("ring_read_seg: a byte is read");
			if (!S.ring.pages) {
				violated("the consumer reads a ring without pages");
				break;
			}
			byte = ring_read_seg(&S.ring, early ? t->i - t->n : t->i, &seg);
			if ((uintptr_t)byte < RING_PAGE_SIZE) {
				violated("the consumer reads without a page");
				break;
			}
			if (SHARED(*byte) != t->done + t->i)
				violated("byte %u is read as 0x%02x", t->done + t->i, *byte);
		}
		if (!early) {
			AT("ring_consume");
			ring_consume(&S.ring, t->n);
		}
		t->done += t->n;
	}
	if (cfg->close) {
		if (cfg->mutation != CLOSE_AFTER_LOOK) {
			AT("proto_close: END_RX_CLOSED");
			SHARED(S.closed) = 1;
		}
		AT("proto_close: ring_len");
		S.unread = SHARED(S.ring.head) != S.ring.tail;
		if (cfg->mutation == CLOSE_AFTER_LOOK) {
			AT("END_RX_CLOSED, after the look");
			SHARED(S.closed) = 1;
		}
	}
	END;
}

/* ring_len() in two steps. */
static enum step watcher(struct thread *t)
{
	const bool head_first = cfg->mutation == WATCH_HEAD_FIRST;
	u32 head;

	BEGIN;
	for (t->done = 0; t->done < cfg->looks; t->done++) {
		AT("ring_len: the first cursor");
		S.was_empty = !in_ring();
		S.was_used = !S.was_empty;
		t->tail = head_first ? SHARED(S.ring.head) : SHARED(S.ring.tail);
		AT("ring_len: the second cursor");
		if (head_first) {
			head = t->tail;
			t->tail = SHARED(S.ring.tail);
		} else {
			head = SHARED(S.ring.head);
		}
		t->n = min(head - t->tail, SIZE);
		if ((int32_t)(head - t->tail) < 0)
			violated("the tail of a look has passed its head");
		if (t->n ? !S.was_used : !S.was_empty)
			violated("a look says %u and that was never so", t->n);
		t->tail = 0;
	}
	S.was_empty = S.was_used = 0;
	END;
}

static enum step step(unsigned int thread)
{
	switch (thread) {
	case 0: return producer(&S.producer);
	case 1: return consumer(&S.consumer);
	default: return watcher(&S.watcher);
	}
}

static const char *thread_name(unsigned int thread)
{
	static const char *const names[] = { "producer", "consumer", "watcher" };

	return names[thread];
}

static void check(void)
{
	if (in_ring() > SIZE)
		violated("the ring holds %u bytes, and its size is %u", in_ring(), SIZE);
	if (S.watcher.pc && S.watcher.pc != PC_DONE) {
		S.was_empty |= !in_ring();
		S.was_used |= !!in_ring();
	}
}

static void quiet(void) { }

static void end(void)
{
	u8 sent = S.producer.done, read = S.consumer.done;

	if (S.watcher.pc != PC_DONE || S.consumer.pc != PC_DONE || S.producer.pc != PC_DONE)
		violated("stuck, with %u of %u bytes read", read, sent);
	else if (in_ring() != (u32)(u8)(sent - read))
		violated("%u bytes sent, %u read, %u in the ring", sent, read, in_ring());
	else if (in_ring() && !S.unread)
		violated("%u bytes are left behind, and the reader went without a reset", in_ring());
}

static void show(void)
{
	printf("ring [%d, %d)%s, pages for %u", (int)S.ring.tail, (int)S.ring.head,
	       S.ring.pages ? "" : " without an array", S.ring.filled);
}

int main(int argc, char **argv)
{
	struct model m = {
		.state = &S, .size = sizeof(S), .threads = 3, .step = step,
		.thread_name = thread_name,
		.check = check, .quiet = quiet, .end = end, .show = show,
	};
	int bad = 0;

	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
		cfg = &scenarios[i];
		m.name = cfg->name;
		if (argc > 1 && strcmp(argv[1], cfg->name))
			continue;
		memset(&S, 0, sizeof(S));
		ring_init(&S.ring, SIZE);
		/* The wrap of 2^32 is near. */
		S.ring.head = S.ring.tail = S.ring.tail_cache = S.ring.head_cache = -2U;
		bad += cfg->mutation ? !expect_found(&m, cfg->why, argc > 1) : !expect_sound(&m);
	}
	return !!bad;
}
