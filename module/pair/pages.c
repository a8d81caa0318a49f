// SPDX-License-Identifier: GPL-2.0
/*
 * Memory pressure takes rings back by a shrinker. Every open ring has an entry on a list_lru,
 * which keeps a list for each memory cgroup. The sender allocates the entry when it opens the
 * ring, so the entry and the pages are charged to the same cgroup. Reclaim for that cgroup
 * (memory.max, memory.high, memory.reclaim) or for the machine finds the entry.
 *
 *   - An entry is on the list from its allocation until just before it is freed. It is freed when
 *     the ring is closed, by a caller that holds the end, or with the end's last reference.
 *   - In both cases the entry leaves the list before the end is freed. So the end of an entry
 *     exists for as long as the list's lock is held. The shrinker takes a reference meanwhile,
 *     unless the last one is gone already.
 *   - Softirqs drop last references and take the list's lock, so every task disables BH for it. No
 *     other lock is taken under it.
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

#define SCAN_RINGS	32	/* most rings that one scan takes from the list */

struct ring_entry {
	struct list_head lru;
	struct pair_end *end;	/* constant */
	u64 seen;			/* ring_bytes at the last look; the list's lock */
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

/* The socket's own mask: a socket that writes back memory must not wait for memory to be written
 * back. NORETRY: a charge that meets memory.max fails here, and the bytes go by TCP. Otherwise it
 * could end in an OOM kill of the sender.
 */
static gfp_t gfp(const struct sock *sk)
{
	return sk->sk_allocation | __GFP_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN;
}

#ifdef CONFIG_MEMCG
/* File pages that are charged to @memcg itself, not to its children. */
static unsigned long file_pages(struct mem_cgroup *memcg)
{
	unsigned long n = 0;
	int nid, zone;

	for_each_node_state(nid, N_NORMAL_MEMORY)
	{
		for (zone = 0; zone < MAX_NR_ZONES; zone++) {
			unsigned long *lru = memcg->nodeinfo[nid]->lru_zone_size[zone];

			n += READ_ONCE(lru[LRU_INACTIVE_FILE]) + READ_ONCE(lru[LRU_ACTIVE_FILE]);
		}
	}
	return n;
}
#endif

/* True if the current task's memory cgroup, or one above it, has no room to spare. The kernel
 * charges MEMCG_CHARGE_BATCH pages ahead.
 *   memory.high	Above it the kernel slows down every task of the cgroup.
 *   memory.max	Files keep many cgroups at this limit all the time. There reclaim takes a page
 *		of theirs for one of ours. If files are less than an eighth of the limit, the
 *		next page fault could end in an OOM kill.
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

/* True if the sender must not ask for memory now. The last attempt failed less than a second ago,
 * or the machine or the cgroup is short of memory. For the latter we use the signs that TCP uses.
 */
static bool must_wait(const struct sock *sk, struct pair_end *end)
{
	if (end->ring_retry && time_before(jiffies, end->ring_retry))
		return true;
	if (!tcp_under_memory_pressure(sk) && !is_full())
		return false;
	end->ring_retry = (jiffies + HZ) | 1;
	return true;
}

/* Reports the verdict once only, because the sender looks for room again and again. */
static bool report_no_ring(struct pair_end *end, const char *reason)
{
	if (!test_and_set_bit(END_LIMITED, &end->flags))
		sks_verdict_end(SOCKSPLICE_STAT_ends_limited, reason, end);
	return false;
}

static bool failed(struct pair_end *end, const char *reason)
{
	end->ring_retry = (jiffies + HZ) | 1;
	return report_no_ring(end, reason);
}

void __sks_pages_charge(const struct sock *sk, struct pair_end *end)
{
	sock_owned_by_me(sk);
	if (must_wait(sk, end))
		return;
	if (kmem_cache_charge(end, gfp(sk)))
		set_bit(END_CHARGED, &end->flags);
	else
		end->ring_retry = (jiffies + HZ) | 1;
}

static void **array_alloc(const struct sock *sk, u32 size)
{
	return kcalloc(size >> PAGE_SHIFT, sizeof(void *), gfp(sk));
}

bool sks_pages_open(const struct sock *sk, struct pair_end *end)
{
	struct ring_entry *entry;
	void **pages;

	sock_owned_by_me(sk);
	if (must_wait(sk, end))
		return report_no_ring(end, "no_memory");
	pages = array_alloc(sk, end->ring.size);
	if (!pages)
		return failed(end, "no_memory");
	entry = kmem_cache_alloc_lru(entries, &rings, gfp(sk));
	if (!entry) {
		kfree(pages);
		return failed(end, "no_memory");
	}
	ring_set_pages(&end->ring, pages, end->ring.size, 0);
	end->ring_full = 0;
	end->ring_entry = entry;
	INIT_LIST_HEAD(&entry->lru);
	entry->end = end;
	entry->seen = end->ring_bytes;
	local_bh_disable();
	list_lru_add_obj(&rings, &entry->lru);
	local_bh_enable();
	return true;
}

static bool page_add(const struct sock *sk, struct pair_end *end)
{
	void *page;

	if (!sks_memory_charge(end->memory.group, end->memory.cap, PAGE_SIZE))
		return failed(end, "memory_cap");
	page = (void *)__get_free_page(gfp(sk));
	if (!page) {
		sks_memory_uncharge(end->memory.group, PAGE_SIZE);
		return failed(end, "no_memory");
	}
	ring_add_page(&end->ring, page);
	return true;
}

bool sks_pages_fill(const struct sock *sk, struct pair_end *end, u32 n)
{
	sock_owned_by_me(sk);
	ring_restart(&end->ring);
	if (n <= ring_backed(&end->ring))
		return true;
	if (must_wait(sk, end))
		return report_no_ring(end, "no_memory");
	while (n > ring_backed(&end->ring)) {
		if (!page_add(sk, end))
			return false;
	}
	return true;
}

void sks_pages_grow(const struct sock *sk, struct pair_end *end)
{
	const u32 filled = end->ring.filled, size = 2 * end->ring.size;
	void **pages, **old;

	sock_owned_by_me(sk);
	if (ring_len(&end->ring) || must_wait(sk, end))
		return;
	end->ring_full = 0;
	if (size > end->memory.ring_max)
		return;
	pages = array_alloc(sk, size);
	if (!pages) {
		end->ring_retry = (jiffies + HZ) | 1;
		return;
	}
	/* The ring stays empty: only the sender appends, and it has the lock. */
	old = ring_take_pages(&end->ring);
	memcpy(pages, old, (filled >> PAGE_SHIFT) * sizeof(*pages));
	kfree(old);
	ring_set_pages(&end->ring, pages, size, filled);
	sks_stat_inc(SOCKSPLICE_STAT_rings_grown);
}

/* Pages that are about to be freed. Each begins with the address of the next. */
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

static void chain_free(struct pair_end *end, struct page_chain *chain)
{
	void **page;

	while ((page = chain->first)) {
		chain->first = *page;
		free_page((unsigned long)page);
	}
	if (chain->n)
		sks_memory_uncharge(end->memory.group, chain->n * PAGE_SIZE);
}

/* Keeps senders from appending to the ring of @end, until unlock_ring(). *@sk is the socket, held
 * as by sks_end_trylock(). It is NULL if end_attachment() has detached @end under the socket's
 * lock. No task appends after that, and END_TRIMMED keeps two callers apart. False if a task owns
 * the socket, or if another caller has the ring.
 */
static bool lock_ring(struct pair_end *end, struct sock **sk)
{
	*sk = sks_end_trylock(end);
	if (IS_ERR(*sk))
		return false;
	if (*sk)
		return true;
	if (test_and_set_bit_lock(END_TRIMMED, &end->flags))
		return false;
	smp_rmb();	/* after the last append: pairs with the barrier in end_attachment() */
	return true;
}

static void unlock_ring(struct pair_end *end, struct sock *sk)
{
	if (sk)
		sks_end_unlock(sk);
	else
		clear_bit_unlock(END_TRIMMED, &end->flags);
}

unsigned int sks_pages_release(struct pair_end *end, u32 spare)
{
	struct page_chain chain = {};
	struct ring_entry *entry = NULL;
	void **pages = NULL;
	struct sock *sk;

	if (!lock_ring(end, &sk))
		return 0;
	if (end->ring.pages) {
		chain_pages(&chain, &end->ring, ring_keep(&end->ring, spare));
		if (!spare)
			pages = ring_take_array(&end->ring);
	}
	if (pages) {
		WRITE_ONCE(end->ring.size, end->memory.ring_size);
		swap(entry, end->ring_entry);
	}
	unlock_ring(end, sk);
	chain_free(end, &chain);
	if (pages) {
		kfree(pages);
		entry_free(entry);
	}
	return chain.n;
}

void sks_pages_free(struct pair_end *end)
{
	struct page_chain chain = {};

	if (!end->ring.pages)
		return;
	chain_pages(&chain, &end->ring, 0);
	chain_free(end, &chain);
	kfree(end->ring.pages);
	entry_free(end->ring_entry);
}

struct scan {
	struct pair_end *ends[SCAN_RINGS];	/* held */
	unsigned int n;
};

/* Runs under the list's lock. Passes over a ring that was used since the last look, once. Where
 * files fill the memory, reclaim goes on all the time, and must leave rings in use alone.
 */
static enum lru_status scan_entry(struct list_head *item, COMPAT_LRU_WALK_PARAMS, void *arg)
{
	struct ring_entry *entry = container_of(item, struct ring_entry, lru);
	const u64 bytes = READ_ONCE(entry->end->ring_bytes);
	struct scan *scan = arg;

	if (bytes != entry->seen)
		entry->seen = bytes;
	else if (scan->n < SCAN_RINGS && refcount_inc_not_zero(&entry->end->ref))
		scan->ends[scan->n++] = entry->end;
	return LRU_ROTATE;
}

/* Returns twice the number of rings. Reclaim asks for half of what it is told, so one ring counts
 * too.
 */
static unsigned long count_rings(struct shrinker *s, struct shrink_control *sc)
{
	return 2 * list_lru_shrink_count(&rings, sc) ?: SHRINK_EMPTY;
}

/* Never waits for a socket. The task that reclaims memory may own one itself, and the owner of
 * another socket may wait for memory. Returns the number of pages freed.
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
		freed += sks_pages_release(scan.ends[i], 0);
		sks_end_put(scan.ends[i], NULL);
	}
	mm_account_reclaimed_pages(freed);
	sks_stat_add(SOCKSPLICE_STAT_pages_reclaimed, freed);
	return freed;
}

int sks_pages_init(void)
{
	static struct lock_class_key lru_key;

	entries = KMEM_CACHE(ring_entry, SLAB_ACCOUNT);
	if (!entries)
		return -ENOMEM;
	shrinker = shrinker_alloc(SHRINKER_MEMCG_AWARE | SHRINKER_NUMA_AWARE, "socksplice-rings");
	if (!shrinker)
		goto free_cache;
	/* A lock class of its own, because other lists are used with softirqs enabled. */
	if (compat_list_lru_init_memcg_key(&rings, shrinker, &lru_key))
		goto free_shrinker;
	shrinker->count_objects = count_rings;
	shrinker->scan_objects = scan_rings;
	shrinker->seeks = 0;	/* a page costs nothing to get again, so take it before the page
				 * cache
				 */
	shrinker->batch = 1;	/* so that a cgroup with few rings is scanned, too */
	shrinker_register(shrinker);
	return 0;

free_shrinker:
	shrinker_free(shrinker);
free_cache:
	kmem_cache_destroy(entries);
	return -ENOMEM;
}

void sks_pages_exit(void)
{
	shrinker_free(shrinker);	/* waits for scans that run, which hold ends */
	WARN_ON_ONCE(sks_memory_held());
	list_lru_destroy(&rings);
	kmem_cache_destroy(entries);
}
