// SPDX-License-Identifier: GPL-2.0
/*
 * Splices over local connections can send bytes round for ever: A's peer is spliced
 * into B, and B's peer into A. Such a loop is found when a splice is about to move its
 * first bytes, by following sink, peer of the sink, splice of that peer, and so on.
 *
 * The two ends of a connection are known by their initial sequence numbers, which
 * mirror each other whatever namespaces and address translation lie between. A loop
 * can carry bytes only once each of its splices has moved some, and the last one to
 * do so finds all others on the table. Who hides a loop by rewriting sequence numbers
 * (TCP_REPAIR, which takes privilege) is still bound by budget.c.
 *
 * The table is everybody's, under one lock. Peers choose one of the two numbers that it is
 * sorted by, so its hash takes both, and a secret; a walk gives up, and says that there is
 * a loop, after as many splices as honest ones do not come to.
 */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/random.h>
#include <linux/spinlock.h>
#include <net/tcp.h>

#include "sosplice.h"

#define LOOP_HOPS_MAX	128	/* a longer chain is taken for a loop */
#define LOOP_VISITS_MAX	4096	/* splices looked at; more, too */

static DEFINE_HASHTABLE(sources, 12);	/* sosplices by hash_of() of src_id */
static u32 seed;			/* constant after init */
static DEFINE_SPINLOCK(loop_lock);

/* What an established connection counts from: its own initial sequence number is
 * exact up to the SYN, which only the active opener counts as acknowledged.
 */
void socksplice_loop_ident(const struct sock *sk, struct loop_ident *id)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	sock_owned_by_me(sk);
	id->irs = tp->rcv_nxt - (u32)tp->bytes_received - 1;
	id->iss = tp->snd_una - (u32)tp->bytes_acked;
}

static bool is_iss(const struct loop_ident *id, u32 seq)
{
	return seq == id->iss || seq == id->iss - 1;
}

static u32 hash_of(u32 irs, u32 iss)
{
	return jhash_2words(irs, iss, seed);
}

/* The splice whose source is the peer of @s's sink, or NULL. Takes what it looks at from
 * *@visits; 0 left: it may have missed it.
 */
static struct sosplice *next_of(const struct sosplice *s, unsigned int *visits)
{
	struct sosplice *n;
	u32 i;

	lockdep_assert_held(&loop_lock);
	for (i = 0; i < 4; i++) {
		const u32 irs = s->dst_id.iss - i / 2, iss = s->dst_id.irs + i % 2;

		hash_for_each_possible(sources, n, loop_node, hash_of(irs, iss)) {
			if (is_iss(&s->dst_id, n->src_id.irs) &&
			    is_iss(&n->src_id, s->dst_id.irs))
				return n;
			if (!--*visits)
				return NULL;
		}
	}
	return NULL;
}

bool socksplice_loop_closes(struct sosplice *s)
{
	unsigned int hops, visits = LOOP_VISITS_MAX;
	const struct sosplice *n = s;
	bool loop = true;

	spin_lock(&loop_lock);
	hash_add(sources, &s->loop_node, hash_of(s->src_id.irs, s->src_id.iss));
	for (hops = 0; hops < LOOP_HOPS_MAX; hops++) {
		n = next_of(n, &visits);
		if (!n)
			loop = !visits;
		if (!n || n == s)
			break;
	}
	spin_unlock(&loop_lock);
	return loop;
}

void socksplice_loop_forget(struct sosplice *s)
{
	spin_lock(&loop_lock);
	hash_del(&s->loop_node);
	spin_unlock(&loop_lock);
}

void socksplice_loop_init(void)
{
	seed = get_random_u32();
}
