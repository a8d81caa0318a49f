// SPDX-License-Identifier: GPL-2.0
/*
 * Unit tests of module/core/ring.h: one function a promise of its header comment.
 */
#include "shim.h"

#include <stddef.h>

static int failures;
static const char *current;

#define CHECK(cond) do {						\
	if (!(cond)) {							\
		printf("# %s:%d: %s\n", __FILE__, __LINE__, #cond);	\
		bad = 1;						\
	}								\
} while (0)

static u32 put(struct ring *r, const void *src, u32 n)
{
	u32 done = 0, len, want = min(n, ring_space(r, n));

	ring_fill(r, want);
	while (done < want) {
		void *p = ring_write_seg(r, done, &len);

		len = min(len, want - done);
		memcpy(p, (const char *)src + done, len);
		done += len;
	}
	ring_publish(r, done);
	return done;
}

static u32 peek(struct ring *r, void *dst, u32 off, u32 n)
{
	u32 used = ring_used(r, off + n), done = 0, len;

	n = off < used ? min(n, used - off) : 0;
	while (done < n) {
		void *p = ring_read_seg(r, off + done, &len);

		len = min(len, n - done);
		memcpy((char *)dst + done, p, len);
		done += len;
	}
	return done;
}

static u32 get(struct ring *r, void *dst, u32 n)
{
	n = peek(r, dst, 0, n);
	ring_consume(r, n);
	return n;
}

static int pages_come_off_an_empty_ring_only(void)
{
	struct ring *r = ring_new(2 * RING_PAGE_SIZE);
	void **pages = r->pages;
	char c = 'x';
	int bad = 0;

	put(r, &c, 1);
	CHECK(!ring_take_pages(r) && r->pages == pages);
	get(r, &c, 1);
	CHECK(ring_take_pages(r) == pages && !r->pages);
	CHECK(!ring_take_pages(r));
	/* the cursors go on from where they were */
	ring_set_pages(r, pages, r->size, r->size);
	CHECK(put(r, "yz", 2) == 2 && ring_len(r) == 2);
	CHECK(get(r, &c, 1) == 1 && c == 'y');
	ring_free(r);
	return bad;
}

static int pages_come_when_the_head_reaches_them(void)
{
	struct ring *r = ring_bare(4 * RING_PAGE_SIZE);
	char in[2 * RING_PAGE_SIZE] = {}, out[2 * RING_PAGE_SIZE];
	int bad = 0;

	CHECK(ring_space(r, r->size) == r->size && !ring_backed(r) && !r->filled);
	CHECK(put(r, in, 1) == 1 && r->filled == RING_PAGE_SIZE);
	CHECK(ring_backed(r) == RING_PAGE_SIZE - 1);
	CHECK(put(r, in, RING_PAGE_SIZE - 1) == RING_PAGE_SIZE - 1);
	CHECK(r->filled == RING_PAGE_SIZE && !ring_backed(r));
	CHECK(put(r, in, 1) == 1 && r->filled == 2 * RING_PAGE_SIZE);
	CHECK(get(r, out, RING_PAGE_SIZE + 1) == RING_PAGE_SIZE + 1);
	/* messages that are read one by one need no page more, wherever they begin */
	for (u32 i = 0; i < 10 * RING_PAGE_SIZE; i++) {
		const u32 n = 1 + i % sizeof(in);

		CHECK(put(r, in, n) == n && get(r, out, n) == n);
	}
	CHECK(r->filled == 2 * RING_PAGE_SIZE);
	ring_free(r);
	return bad;
}

static int pages_with_unread_bytes_stay(void)
{
	struct ring *r = ring_new(4 * RING_PAGE_SIZE);
	const u32 page = RING_PAGE_SIZE;
	char in[4 * RING_PAGE_SIZE], out[4 * RING_PAGE_SIZE];
	int bad = 0;

	for (u32 i = 0; i < sizeof(in); i++)
		in[i] = i * 13;
	/* the last two pages go, even if the first holds no byte any more */
	CHECK(put(r, in, page + 1) == page + 1 && get(r, out, page) == page);
	CHECK(ring_trim(r, 0) == 2 && r->filled == 2 * page);
	CHECK(get(r, out, 1) == 1 && out[0] == in[page]);
	/* of an empty ring all but what is spared; the next byte is the first page's */
	CHECK(ring_trim(r, page) == 1 && r->filled == page && ring_backed(r) == page);
	CHECK(!ring_trim(r, page) && !ring_trim(r, 2 * page));
	CHECK(ring_trim(r, 0) == 1 && !r->filled && !ring_backed(r));
	/* where they go round the end, none goes */
	CHECK(put(r, in, 4 * page) == 4 * page && get(r, out, 3 * page) == 3 * page);
	CHECK(put(r, in, page) == page);
	CHECK(!ring_trim(r, 0) && r->filled == 4 * page);
	CHECK(get(r, out, page) == page && !memcmp(out, in + 3 * page, page));
	/* the rest begins at the first page, and ends there */
	CHECK(ring_trim(r, 0) == 3 && r->filled == page && !ring_backed(r));
	CHECK(get(r, out, page) == page && !memcmp(out, in, page));
	ring_free(r);
	return bad;
}

static int a_larger_array_keeps_the_pages(void)
{
	struct ring *r = ring_bare(RING_PAGE_SIZE);
	void **larger = pages_new(2 * RING_PAGE_SIZE), **old;
	char in[2 * RING_PAGE_SIZE] = {}, out[2 * RING_PAGE_SIZE];
	int bad = 0;

	CHECK(put(r, in, 10) == 10 && get(r, out, 10) == 10);
	old = ring_take_pages(r);
	larger[0] = old[0];
	free(old);
	ring_set_pages(r, larger, 2 * RING_PAGE_SIZE, RING_PAGE_SIZE);
	CHECK(ring_backed(r) == RING_PAGE_SIZE && r->pages[0]);
	CHECK(put(r, in, sizeof(in)) == sizeof(in) && get(r, out, sizeof(in)) == sizeof(in));
	ring_free(r);
	return bad;
}

/* Larger and smaller, at places where a view of the tail from before would not fit. */
static int an_empty_ring_takes_another_size(void)
{
	static const u32 sizes[] = { 8, 1, 4, 1, 16, 2, 2 };
	struct ring *r = ring_new(2 * RING_PAGE_SIZE);
	char in[16 * RING_PAGE_SIZE], out[16 * RING_PAGE_SIZE];
	int bad = 0;

	for (u32 i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const u32 before = r->size, size = sizes[i] * RING_PAGE_SIZE;

		for (u32 j = 0; j < size; j++)
			in[j] = i * 31 + j;
		/* the producer sees the tail where it is now, the consumer then moves it */
		CHECK(put(r, in, before - 1) == before - 1);
		CHECK(get(r, out, before - 1) == before - 1);
		pages_free(ring_take_pages(r), before);
		ring_set_pages(r, pages_new(size), size, 0);
		CHECK(ring_space(r, size + 1) == size && !ring_len(r));
		CHECK(put(r, in, size) == size && ring_len(r) == size);
		CHECK(!ring_take_pages(r));
		CHECK(get(r, out, size) == size && !memcmp(in, out, size));
	}
	ring_free(r);
	return bad;
}

/* Where the next byte is written, counted from the first page's first. */
static u32 place(const struct ring *r)
{
	u32 len;
	char *p = ring_write_seg(r, 0, &len);

	for (u32 i = 0; i < r->size / RING_PAGE_SIZE; i++)
		if (p >= (char *)r->pages[i] && p < (char *)r->pages[i] + RING_PAGE_SIZE)
			return i * RING_PAGE_SIZE + (p - (char *)r->pages[i]);
	return -1;
}

static int an_empty_ring_begins_anew(void)
{
	struct ring *r = ring_new(8 * RING_PAGE_SIZE);
	char in[3 * RING_PAGE_SIZE], out[3 * RING_PAGE_SIZE];
	int bad = 0;

	for (u32 i = 0; i < sizeof(in); i++)
		in[i] = i * 7;
	ring_rewind(r);
	for (u32 i = 0; i < 20; i++) {
		const u32 n = RING_PAGE_SIZE - 1;

		ring_rewind(r);
		CHECK(place(r) < 3 * RING_PAGE_SIZE);
		CHECK(put(r, in, n) == n);
		CHECK(get(r, out, n) == n && !memcmp(in, out, n));
	}
	/* not with a byte in it, until there is none again */
	CHECK(put(r, in, sizeof(in)) == sizeof(in));
	CHECK(get(r, out, sizeof(in) - 1) == sizeof(in) - 1);
	ring_rewind(r);
	CHECK(place(r));
	CHECK(get(r, out, 1) == 1 && out[0] == in[sizeof(in) - 1]);
	CHECK(put(r, in, 2 * RING_PAGE_SIZE) == 2 * RING_PAGE_SIZE);
	CHECK(get(r, out, sizeof(in)) == 2 * RING_PAGE_SIZE);
	ring_rewind(r);
	CHECK(!place(r));
	ring_free(r);
	return bad;
}

static int empty_ring_holds_nothing(void)
{
	struct ring *r = ring_new(4 * RING_PAGE_SIZE);
	int bad = 0;

	CHECK(ring_len(r) == 0);
	CHECK(ring_used(r, 1) == 0);
	CHECK(ring_space(r, 1) == r->size);
	ring_free(r);
	return bad;
}

static int cursors_lie_on_lines_of_their_own(void)
{
	int bad = 0;

	CHECK(offsetof(struct ring, head) % 64 == 0);
	CHECK(offsetof(struct ring, tail) % 64 == 0);
	CHECK(offsetof(struct ring, tail) - offsetof(struct ring, head) >= 64);
	CHECK(offsetof(struct ring, tail_cache) / 64 == offsetof(struct ring, head) / 64);
	CHECK(offsetof(struct ring, head_cache) / 64 == offsetof(struct ring, tail) / 64);
	CHECK(sizeof(struct ring) % 64 == 0);
	return bad;
}

static int full_ring_takes_no_more(void)
{
	struct ring *r = ring_new(4 * RING_PAGE_SIZE);
	u32 size = r->size;
	char *in = malloc(size + 1), *out = malloc(size + 1);
	int bad = 0;

	for (u32 i = 0; i <= size; i++)
		in[i] = pattern(i);
	CHECK(put(r, in, size + 1) == size);
	CHECK(ring_space(r, 1) == 0);
	CHECK(ring_len(r) == size);
	CHECK(put(r, in, 1) == 0);
	CHECK(get(r, out, size + 1) == size);
	CHECK(!memcmp(in, out, size));
	CHECK(ring_len(r) == 0);
	CHECK(ring_space(r, size) == size);
	free(in);
	free(out);
	ring_free(r);
	return bad;
}

static int segments_end_at_pages(void)
{
	struct ring *r = ring_new(2 * RING_PAGE_SIZE);
	u32 len;
	int bad = 0;

	CHECK(ring_write_seg(r, 0, &len) == r->pages[0] && len == RING_PAGE_SIZE);
	CHECK(ring_write_seg(r, 1, &len) == (char *)r->pages[0] + 1 &&
	      len == RING_PAGE_SIZE - 1);
	CHECK(ring_write_seg(r, RING_PAGE_SIZE, &len) == r->pages[1] && len == RING_PAGE_SIZE);
	ring_publish(r, RING_PAGE_SIZE + 3);
	CHECK(ring_read_seg(r, RING_PAGE_SIZE - 1, &len) ==
	      (char *)r->pages[0] + RING_PAGE_SIZE - 1 && len == 1);
	ring_consume(r, RING_PAGE_SIZE + 3);
	/* The next write wraps to the first page. */
	CHECK(ring_write_seg(r, RING_PAGE_SIZE - 3, &len) == r->pages[0] && len == RING_PAGE_SIZE);
	ring_free(r);
	return bad;
}

static int one_page_is_a_ring(void)
{
	struct ring *r = ring_new(RING_PAGE_SIZE);
	char c;
	int bad = 0;

	for (u32 i = 0; i < 5 * RING_PAGE_SIZE; i++) {
		char b = pattern(i);

		CHECK(put(r, &b, 1) == 1);
		CHECK(get(r, &c, 1) == 1 && c == b);
	}
	ring_free(r);
	return bad;
}

static int cursors_wrap_at_four_gigabytes(void)
{
	struct ring *r = ring_new(4 * RING_PAGE_SIZE);
	u32 size = r->size;
	char *in = malloc(size), *out = malloc(size);
	int bad = 0;

	for (u32 i = 0; i < size; i++)
		in[i] = pattern(i);
	for (u32 before = 0; before <= 2 * size; before += 7) {
		ring_rebase(r, 0u - before);
		for (int i = 0; i < 4; i++) {
			u32 n = size - i;

			memset(out, 0, size);
			CHECK(put(r, in, n) == n);
			CHECK(ring_len(r) == n);
			CHECK(ring_used(r, n) == n);
			CHECK(ring_space(r, size) == size - n);
			CHECK(get(r, out, n) == n);
			CHECK(!memcmp(in, out, n));
		}
	}
	free(in);
	free(out);
	ring_free(r);
	return bad;
}

static int unpublished_bytes_are_invisible(void)
{
	struct ring *r = ring_new(2 * RING_PAGE_SIZE);
	u32 len;
	int bad = 0;

	*(char *)ring_write_seg(r, 0, &len) = 'x';
	CHECK(ring_len(r) == 0);
	CHECK(ring_used(r, 1) == 0);
	ring_publish(r, 1);
	CHECK(ring_used(r, 1) == 1);
	CHECK(*(char *)ring_read_seg(r, 0, &len) == 'x');
	ring_free(r);
	return bad;
}

static int peek_leaves_the_bytes(void)
{
	struct ring *r = ring_new(2 * RING_PAGE_SIZE);
	char out[8];
	int bad = 0;

	CHECK(put(r, "abcdef", 6) == 6);
	CHECK(peek(r, out, 2, 3) == 3 && !memcmp(out, "cde", 3));
	CHECK(peek(r, out, 6, 1) == 0);
	CHECK(peek(r, out, 0, 8) == 6 && !memcmp(out, "abcdef", 6));
	CHECK(get(r, out, 8) == 6 && !memcmp(out, "abcdef", 6));
	ring_free(r);
	return bad;
}

/* The point of the cached cursors: no look at the other side's line while the
 * own view suffices, and a fresh look when it does not.
 */
static int cached_views_refresh_on_demand(void)
{
	struct ring *r = ring_new(2 * RING_PAGE_SIZE);
	u32 size = r->size;
	int bad = 0;

	CHECK(ring_used(r, 1) == 0);
	ring_publish(r, 4);
	CHECK(ring_used(r, 0) == 0);
	CHECK(ring_used(r, 1) == 4);
	ring_publish(r, 4);
	CHECK(ring_used(r, 4) == 4);
	CHECK(ring_used(r, 5) == 8);
	ring_consume(r, 8);
	CHECK(ring_space(r, size - 8) == size - 8);
	CHECK(ring_space(r, size - 7) == size);
	ring_free(r);
	return bad;
}

static int retract_takes_the_last_bytes_back(void)
{
	struct ring *r = ring_new(2 * RING_PAGE_SIZE);
	char out[16];
	int bad = 0;

	ring_rebase(r, 0u - 3);
	CHECK(put(r, "abcdef", 6) == 6);
	CHECK(get(r, out, 2) == 2);
	ring_retract(r, 3);
	CHECK(ring_len(r) == 1);
	CHECK(ring_space(r, r->size) == r->size - 1);
	ring_retract(r, 1);
	CHECK(ring_len(r) == 0);
	CHECK(ring_space(r, r->size) == r->size);
	CHECK(put(r, "xyz", 3) == 3);
	CHECK(ring_len(r) == 3);
	ring_free(r);
	return bad;
}

static int sent_bytes_stay_until_the_next(void)
{
	const u32 size = 2 * RING_PAGE_SIZE;
	struct ring *r = ring_new(size);
	char in[64], out[64];
	u32 len, done = 0;
	int bad = 0;

	for (u32 i = 0; i < sizeof(in); i++)
		in[i] = i;
	/* Over the ends of the ring, of a page and of the cursors. */
	ring_rebase(r, 0u - 20);
	CHECK(put(r, in, sizeof(in)) == sizeof(in));
	CHECK(get(r, out, sizeof(out)) == sizeof(out));
	while (done < sizeof(in)) {
		void *p = ring_sent_seg(r, sizeof(in) - done, &len);

		CHECK(len > 0);
		len = min(len, (u32)sizeof(in) - done);
		CHECK(!memcmp(p, in + done, len));
		done += len;
	}
	ring_free(r);
	return bad;
}

static const struct {
	const char *name;
	int (*run)(void);
} tests[] = {
#define T(f) { #f, f }
	T(empty_ring_holds_nothing),
	T(pages_come_off_an_empty_ring_only),
	T(pages_come_when_the_head_reaches_them),
	T(pages_with_unread_bytes_stay),
	T(a_larger_array_keeps_the_pages),
	T(an_empty_ring_begins_anew),
	T(an_empty_ring_takes_another_size),
	T(cursors_lie_on_lines_of_their_own),
	T(full_ring_takes_no_more),
	T(segments_end_at_pages),
	T(one_page_is_a_ring),
	T(cursors_wrap_at_four_gigabytes),
	T(unpublished_bytes_are_invisible),
	T(peek_leaves_the_bytes),
	T(cached_views_refresh_on_demand),
	T(retract_takes_the_last_bytes_back),
	T(sent_bytes_stay_until_the_next),
};

int main(void)
{
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		current = tests[i].name;
		if (tests[i].run()) {
			printf("not ok ring/unit/%s (page shift %d)\n", current, RING_PAGE_SHIFT);
			failures++;
		} else {
			printf("ok ring/unit/%s (page shift %d)\n", current, RING_PAGE_SHIFT);
		}
	}
	return failures != 0;
}
