// SPDX-License-Identifier: GPL-2.0
/*
 * Memory pressure takes rings back by a shrinker. Every open ring has an entry on a list_lru,
 * which keeps a list for each memory cgroup. The sender allocates the entry when it opens the
 * ring, so the entry and the pages are charged to the same cgroup, and reclaim for that
 * cgroup (memory.max, memory.high, memory.reclaim) or for the machine finds it.
 *
 *   - An entry is on the list from its allocation until just before it is freed: when the
 *     ring was closed, by a caller that holds the chan, or with the chan's last reference.
 *   - In both cases the entry leaves the list before the chan is freed. So the chan of an
 *     entry exists for as long as the list's lock is held; the shrinker takes a reference
 *     meanwhile, unless the last one is gone already.
 *   - Softirqs drop last references and take the list's lock, so everybody disables BH for it.
 *     No other lock is taken under it.
 */
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/list_lru.h>
#include <linux/memcontrol.h>
#include <linux/minmax.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <net/tcp.h>

#include "compat/compat.h"
#include "core/stats.h"
#include "pair/end.h"
#include "pair/memory.h"
#include "pair/pages.h"
#include "pair/verdict.h"

#define SCAN_RINGS	32	/* that are looked at under the list's lock at one time */

struct ring_entry {
	struct list_head lru;
	struct socksplice_chan *c;	/* constant */
	u64 seen;			/* the list's lock: ring_bytes, at the last look */
};

static struct kmem_cache *entries;
static struct list_lru rings;
static struct shrinker *shrinker;

static void entry_free(struct ring_entry *entry)
{
	local_bh_disable();
	list_lru_del_obj(&rings, &entry->lru);
	local_bh_enable();
	kmem_cache_free(entries, entry);
}

/* The socket's own mask, because a socket that writes back memory must not wait for memory
 * to be written back. NORETRY: a charge that meets memory.max fails here and the bytes go
 * by TCP, where otherwise it could end in an OOM kill of the sender.
 */
static gfp_t gfp(const struct sock *sk)
{
	return sk->sk_allocation | __GFP_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN;
}

#ifdef CONFIG_MEMCG
/* Pages of files that are charged to @memcg itself. */
static unsigned long file_pages(struct mem_cgroup *memcg)
{
	unsigned long n = 0;
	int nid, zone;

	for_each_node_state(nid, N_NORMAL_MEMORY) {
		for (zone = 0; zone < MAX_NR_ZONES; zone++) {
			unsigned long *lru = memcg->nodeinfo[nid]->lru_zone_size[zone];

			n += READ_ONCE(lru[LRU_INACTIVE_FILE]) + READ_ONCE(lru[LRU_ACTIVE_FILE]);
		}
	}
	return n;
}
#endif

/* True if the memory cgroup that pays for a page, or one above, has no room to spare. The
 * kernel charges MEMCG_CHARGE_BATCH pages ahead.
 *   memory.high	Beyond it the kernel slows down every task of the cgroup.
 *   memory.max		Files keep many cgroups there all the time, and reclaim takes a page of
 *			theirs for ours. Where they are less than an eighth of the limit, the
 *			next page fault could end in an OOM kill.
 */
static bool is_full(void)
{
#ifdef CONFIG_MEMCG
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(NULL), *m;
	bool full = false;

	for (m = memcg; m && !full; m = parent_mem_cgroup(m)) {
		const unsigned long use = page_counter_read(&m->memory) + 2 * MEMCG_CHARGE_BATCH;
		const unsigned long max = READ_ONCE(m->memory.max);

		full = use > READ_ONCE(m->memory.high) ||
		       (use > max && file_pages(memcg) < max / 8);
	}
	mem_cgroup_put(memcg);
	return full;
#else
	return false;
#endif
}

/* True while no more memory is to be asked for: the last attempt was less than a second ago
 * and failed, or the machine or the cgroup is short of it, by the signs that TCP goes by.
 */
static bool must_wait(const struct sock *sk, struct socksplice_chan *c)
{
	if (c->ring_retry && time_before(jiffies, c->ring_retry))
		return true;
	if (!tcp_under_memory_pressure(sk) && !is_full())
		return false;
	c->ring_retry = (jiffies + HZ) | 1;
	return true;
}

/* Told of once: the sender looks for room again and again. */
static bool limited(struct socksplice_chan *c, const char *reason)
{
	if (!test_and_set_bit(CHAN_LIMITED, &c->flags))
		socksplice_event_chan(SOCKSPLICE_STAT_ends_limited, reason, c);
	return false;
}

static bool failed(struct socksplice_chan *c, const char *reason)
{
	c->ring_retry = (jiffies + HZ) | 1;
	return limited(c, reason);
}

void __socksplice_pages_charge(const struct sock *sk, struct socksplice_chan *c)
{
	sock_owned_by_me(sk);
	if (must_wait(sk, c))
		return;
	if (kmem_cache_charge(c, gfp(sk)))
		set_bit(CHAN_CHARGED, &c->flags);
	else
		c->ring_retry = (jiffies + HZ) | 1;
}

static void **array_alloc(const struct sock *sk, u32 size)
{
	return kcalloc(size >> PAGE_SHIFT, sizeof(void *), gfp(sk));
}

bool socksplice_pages_open(const struct sock *sk, struct socksplice_chan *c)
{
	struct ring_entry *entry;
	void **pages;

	sock_owned_by_me(sk);
	if (must_wait(sk, c))
		return limited(c, "no_memory");
	pages = array_alloc(sk, c->ring.size);
	if (!pages)
		return failed(c, "no_memory");
	entry = kmem_cache_alloc_lru(entries, &rings, gfp(sk));
	if (!entry) {
		kfree(pages);
		return failed(c, "no_memory");
	}
	ring_set_pages(&c->ring, pages, c->ring.size, 0);
	c->ring_full = 0;
	c->ring_entry = entry;
	INIT_LIST_HEAD(&entry->lru);
	entry->c = c;
	entry->seen = c->ring_bytes;
	local_bh_disable();
	list_lru_add_obj(&rings, &entry->lru);
	local_bh_enable();
	return true;
}

static bool page_add(const struct sock *sk, struct socksplice_chan *c)
{
	void *page;

	if (!socksplice_memory_charge(c->memory.group, c->memory.cap, PAGE_SIZE))
		return failed(c, "memory_cap");
	page = (void *)__get_free_page(gfp(sk));
	if (!page) {
		socksplice_memory_uncharge(c->memory.group, PAGE_SIZE);
		return failed(c, "no_memory");
	}
	ring_add_page(&c->ring, page);
	return true;
}

bool socksplice_pages_fill(const struct sock *sk, struct socksplice_chan *c, u32 n)
{
	sock_owned_by_me(sk);
	ring_restart(&c->ring);
	if (n <= ring_backed(&c->ring))
		return true;
	if (must_wait(sk, c))
		return limited(c, "no_memory");
	while (n > ring_backed(&c->ring)) {
		if (!page_add(sk, c))
			return false;
	}
	return true;
}

void socksplice_pages_grow(const struct sock *sk, struct socksplice_chan *c)
{
	const u32 filled = c->ring.filled, size = 2 * c->ring.size;
	void **pages, **old;

	sock_owned_by_me(sk);
	if (ring_len(&c->ring) || must_wait(sk, c))
		return;
	c->ring_full = 0;
	if (size > c->memory.ring_max)
		return;
	pages = array_alloc(sk, size);
	if (!pages) {
		c->ring_retry = (jiffies + HZ) | 1;
		return;
	}
	/* It stays empty: the sender has the lock. */
	old = ring_take_pages(&c->ring);
	memcpy(pages, old, (filled >> PAGE_SHIFT) * sizeof(*pages));
	kfree(old);
	ring_set_pages(&c->ring, pages, size, filled);
	socksplice_stat_inc(SOCKSPLICE_STAT_rings_grown);
}

/* Pages that are about to be freed, each of which begins with the address of the next. */
struct page_chain {
	void *first;
	unsigned int n;
};

static void chain_pages(struct page_chain *chain, struct ring *r, u32 keep)
{
	while (r->filled > keep) {
		void **page = ring_pop_page(r);

		*page = chain->first;
		chain->first = page;
		chain->n++;
	}
}

static void chain_free(struct socksplice_chan *c, struct page_chain *chain)
{
	void **page;

	while ((page = chain->first)) {
		chain->first = *page;
		free_page((unsigned long)page);
	}
	if (chain->n)
		socksplice_memory_uncharge(c->memory.group, chain->n * PAGE_SIZE);
}

/* The socket of @c, for a moment in which nobody appends to its ring: see
 * socksplice_chan_trylock(). If @c has none any more, which chan_end() did under the socket's
 * lock, nobody ever appends again, and CHAN_TRIMMED keeps two callers apart.
 */
static bool lock_ring(struct socksplice_chan *c, struct sock **sk)
{
	*sk = socksplice_chan_trylock(c);
	if (IS_ERR(*sk))
		return false;
	if (*sk)
		return true;
	if (test_and_set_bit_lock(CHAN_TRIMMED, &c->flags))
		return false;
	smp_rmb();	/* after the sender's last append: pairs with the barrier in chan_end() */
	return true;
}

static void unlock_ring(struct socksplice_chan *c, struct sock *sk)
{
	if (sk)
		socksplice_chan_unlock(sk);
	else
		clear_bit_unlock(CHAN_TRIMMED, &c->flags);
}

unsigned int socksplice_pages_release(struct socksplice_chan *c, u32 spare)
{
	struct page_chain chain = {};
	struct ring_entry *entry = NULL;
	void **pages = NULL;
	struct sock *sk;

	if (!lock_ring(c, &sk))
		return 0;
	if (c->ring.pages) {
		chain_pages(&chain, &c->ring, ring_keep(&c->ring, spare));
		if (!spare)
			pages = ring_take_array(&c->ring);
	}
	if (pages) {
		WRITE_ONCE(c->ring.size, c->memory.ring_size);
		swap(entry, c->ring_entry);
	}
	unlock_ring(c, sk);
	chain_free(c, &chain);
	if (pages) {
		kfree(pages);
		entry_free(entry);
	}
	return chain.n;
}

void socksplice_pages_free(struct socksplice_chan *c)
{
	struct page_chain chain = {};

	if (!c->ring.pages)
		return;
	chain_pages(&chain, &c->ring, 0);
	chain_free(c, &chain);
	kfree(c->ring.pages);
	entry_free(c->ring_entry);
}

struct scan {
	struct socksplice_chan *chan[SCAN_RINGS];	/* held */
	unsigned int n;
};

/* Under the list's lock. A ring that was used since the last look has another chance, so that
 * reclaim that goes on all the time, as it does where files fill the memory, leaves alone
 * what is in use.
 */
static enum lru_status scan_entry(struct list_head *item, COMPAT_LRU_WALK_PARAMS, void *arg)
{
	struct ring_entry *entry = container_of(item, struct ring_entry, lru);
	const u64 bytes = READ_ONCE(entry->c->ring_bytes);
	struct scan *scan = arg;

	if (bytes != entry->seen)
		entry->seen = bytes;
	else if (scan->n < SCAN_RINGS && refcount_inc_not_zero(&entry->c->ref))
		scan->chan[scan->n++] = entry->c;
	return LRU_ROTATE;
}

/* Twice the number of rings: reclaim asks for half of what it is told, so also for one. */
static unsigned long count_rings(struct shrinker *s, struct shrink_control *sc)
{
	return 2 * list_lru_shrink_count(&rings, sc) ?: SHRINK_EMPTY;
}

/* Never waits for a socket: the task that reclaims may own one itself, and the owner of another
 * may wait for memory. Returns the number of pages freed.
 */
static unsigned long scan_rings(struct shrinker *s, struct shrink_control *sc)
{
	unsigned long todo = min(list_lru_shrink_count(&rings, sc), SCAN_RINGS), freed = 0;
	struct scan scan = {};
	unsigned int i;

	sc->nr_scanned = 2 * max(todo, 1UL);
	local_bh_disable();
	list_lru_walk_one(&rings, sc->nid, sc->memcg, scan_entry, &scan, &todo);
	local_bh_enable();
	for (i = 0; i < scan.n; i++) {
		freed += socksplice_pages_release(scan.chan[i], 0);
		socksplice_chan_put(scan.chan[i], NULL);
	}
	mm_account_reclaimed_pages(freed);
	socksplice_stat_add(SOCKSPLICE_STAT_pages_reclaimed, freed);
	return freed;
}

int socksplice_pages_init(void)
{
	static struct lock_class_key lru_key;

	entries = KMEM_CACHE(ring_entry, SLAB_ACCOUNT);
	if (!entries)
		return -ENOMEM;
	shrinker = shrinker_alloc(SHRINKER_MEMCG_AWARE | SHRINKER_NUMA_AWARE, "socksplice-rings");
	if (!shrinker)
		goto free_cache;
	/* A lock class of its own: the lists of others are used with softirqs enabled. */
	if (compat_list_lru_init_memcg_key(&rings, shrinker, &lru_key))
		goto free_shrinker;
	shrinker->count_objects = count_rings;
	shrinker->scan_objects = scan_rings;
	shrinker->seeks = 0;	/* a page costs nothing to get again: before the page cache */
	shrinker->batch = 1;	/* a cgroup with few rings is asked, too */
	shrinker_register(shrinker);
	return 0;

free_shrinker:
	shrinker_free(shrinker);
free_cache:
	kmem_cache_destroy(entries);
	return -ENOMEM;
}

void socksplice_pages_exit(void)
{
	shrinker_free(shrinker);	/* waits for running scans, which hold chans */
	WARN_ON_ONCE(socksplice_memory_held());
	list_lru_destroy(&rings);
	kmem_cache_destroy(entries);
}
