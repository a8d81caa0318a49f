// SPDX-License-Identifier: GPL-2.0
/*
 * Finds loops. Splices over local connections can send bytes round for ever: A's peer is spliced
 * into B, and B's peer into A. We look for a loop when a splice is about to move its first bytes,
 * and again after one of its sockets was un-paired: its numbers change then. The search follows
 * the sink, the peer of the sink, the splice of that peer, and so on. A chain of more than
 * LOOP_HOPS_MAX splices, counted both ways, is taken for a loop. So the length of a chain does not
 * depend on which of its splices moved first.
 *
 * The two ends of a connection are known by their initial sequence numbers. These mirror each
 * other whatever namespaces and address translation lie between. A loop can carry bytes only once
 * each of its splices has moved some. The last one to do so finds all others on the table. A
 * process can hide a loop by rewriting sequence numbers (TCP_REPAIR, which takes privilege).
 * budget.c still bounds its splices.
 *
 * Datagrams can come back in more ways than along connections, so each is counted, as on OpenBSD.
 * The count has to travel with the packet. skb->hash is the one field that the sender sets, by
 * sk_txhash, that nothing on the way to a local receiver changes, and that no application sees. So
 * a sink sends with a hash of which 25 bits name the splice, by a random number, and 7 bits are
 * the count. A packet that came from a network card has the card's hash, and counts as new.
 *
 * All users share the table, under one lock. Peers choose one of the two numbers of its key, so
 * the hash takes both, and a secret. A walk gives up, and reports a loop, after more splices than
 * honest ones come to.
 */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/spinlock.h>
#include <net/tcp.h>

#include "sosplice/loop.h"
#include "sosplice/splice.h"

#define LOOP_VISITS_MAX	4096	/* splices that a search looks at; a longer search reports a loop */

/* Splices by hash_of() of src_id, and of dst_id; loop_lock. */
static DEFINE_HASHTABLE(sources, 12);
static DEFINE_HASHTABLE(sinks, 12);
static DEFINE_HASHTABLE(datagrams, 10);		/* splices of UDP by hops_id, by loop_sink */
static u32 seed;			/* constant after init */
static DEFINE_SPINLOCK(loop_lock);

/* Reads the numbers of an established connection. Its own initial sequence number is exact up to
 * the SYN, which only the active opener counts as acknowledged.
 */
void sks_loop_ident(const struct sock *sk, struct loop_ident *id)
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

/* True if @a and @b are the two ends of one connection. */
static bool mirror(const struct loop_ident *a, const struct loop_ident *b)
{
	return is_iss(a, b->irs) && is_iss(b, a->irs);
}

/* The next splice in the chain: @ahead, the one whose source is the peer of @s's sink, else the
 * one whose sink is the peer of @s's source. NULL if there is none. Takes the splices that it
 * looks at off *@visits. If that is 0 on return, the search may have missed a splice.
 */
static struct splice *neighbour(const struct splice *s, bool ahead, unsigned int *visits)
{
	const struct loop_ident *id = ahead ? &s->dst_id : &s->src_id;
	struct splice *n;
	u32 i;

	lockdep_assert_held(&loop_lock);
	for (i = 0; i < 4; i++) {
		const u32 hash = hash_of(id->iss - i / 2, id->irs + i % 2);

		if (ahead) {
			hash_for_each_possible(sources, n, loop_source, hash)
			{
				if (mirror(id, &n->src_id))
					return n;
				if (!--*visits)
					return NULL;
			}
		} else {
			hash_for_each_possible(sinks, n, loop_sink, hash)
			{
				if (mirror(id, &n->dst_id))
					return n;
				if (!--*visits)
					return NULL;
			}
		}
	}
	return NULL;
}

/* Counts the splices on one side of @s in *@hops. True if the chain comes back to @s, or is too
 * long to tell.
 */
static bool walk(const struct splice *s, bool ahead, unsigned int *hops, unsigned int *visits)
{
	const struct splice *n = s;

	while (*hops <= LOOP_HOPS_MAX) {
		n = neighbour(n, ahead, visits);
		if (!n)
			return !*visits;
		if (n == s)
			return true;
		++*hops;
	}
	return true;
}

bool sks_loop_closes(struct splice *s)
{
	unsigned int hops = 1, visits = LOOP_VISITS_MAX;
	bool loop;

	spin_lock(&loop_lock);
	hash_add(sources, &s->loop_source, hash_of(s->src_id.irs, s->src_id.iss));
	hash_add(sinks, &s->loop_sink, hash_of(s->dst_id.irs, s->dst_id.iss));
	loop = walk(s, true, &hops, &visits) || walk(s, false, &hops, &visits);
	spin_unlock(&loop_lock);
	return loop;
}

static bool is_taken(u32 id)
{
	const struct splice *s;

	lockdep_assert_held(&loop_lock);
	hash_for_each_possible(datagrams, s, loop_sink, id)
	{
		if (s->hops_id == id)
			return true;
	}
	return false;
}

#define HOPS_BITS	7
static_assert(LOOP_HOPS_MAX == 1 << HOPS_BITS);

void sks_loop_join(struct splice *s)
{
	sock_owned_by_me(s->src);
	if (!hlist_unhashed(&s->loop_sink))
		return;
	spin_lock(&loop_lock);
	do
		s->hops_id = get_random_u32() >> HOPS_BITS;
	while (!s->hops_id || is_taken(s->hops_id));
	hash_add(datagrams, &s->loop_sink, s->hops_id);
	spin_unlock(&loop_lock);
}

/* True if the packet came from a device that has hardware. */
static bool from_card(const struct net *net, const struct sk_buff *skb)
{
	const struct net_device *dev;
	bool card;

	rcu_read_lock();
	dev = dev_get_by_index_rcu((struct net *)net, skb->skb_iif);
	card = dev && dev->dev.parent;
	rcu_read_unlock();
	return card;
}

unsigned int sks_loop_hops(const struct splice *s, const struct sk_buff *skb)
{
	bool ours;

	if (!skb->l4_hash || skb->sw_hash)
		return 0;
	spin_lock(&loop_lock);
	ours = is_taken(skb->hash >> HOPS_BITS);
	spin_unlock(&loop_lock);
	if (!ours || from_card(sock_net(s->src), skb))
		return 0;
	return (skb->hash & (LOOP_HOPS_MAX - 1)) + 1;
}

u32 sks_loop_hash(const struct splice *s, unsigned int hops)
{
	return s->hops_id << HOPS_BITS | hops;
}

void sks_loop_forget(struct splice *s)
{
	spin_lock(&loop_lock);
	hash_del(&s->loop_source);
	hash_del(&s->loop_sink);
	spin_unlock(&loop_lock);
}

void sks_loop_init(void)
{
	seed = get_random_u32();
}
