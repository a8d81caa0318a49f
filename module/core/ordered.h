/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All objects of one kind, in the order in which they were added.
 *
 * A walk may drop the lock. It then goes on behind the number that it has reached, whether the
 * object of that number still exists or not. Finding the place costs one search of the tree. The
 * caller's lock protects the struct ordered and the nodes.
 */
#ifndef SOCKSPLICE_ORDERED_H
#define SOCKSPLICE_ORDERED_H

#include <linux/rbtree.h>
#include <linux/types.h>

struct ordered {
	struct rb_root root;
	u64 last;		/* the number of the newest node, even if that is deleted */
};

struct ordered_node {
	struct rb_node node;
	u64 number;		/* from 1 on; no number is used twice */
};

/* Adds @n as the newest node. */
static inline void ordered_add(struct ordered *o, struct ordered_node *n)
{
	struct rb_node *parent = rb_last(&o->root);

	n->number = ++o->last;
	rb_link_node(&n->node, parent, parent ? &parent->rb_right : &o->root.rb_node);
	rb_insert_color(&n->node, &o->root);
}

static inline void ordered_del(struct ordered *o, struct ordered_node *n)
{
	rb_erase(&n->node, &o->root);
}

static inline struct ordered_node *ordered_next(const struct ordered_node *n)
{
	return rb_entry_safe(rb_next(&n->node), struct ordered_node, node);
}

/* The first node whose number is above @number, or NULL. */
static inline struct ordered_node *ordered_behind(const struct ordered *o, u64 number)
{
	struct rb_node *p = o->root.rb_node;
	struct ordered_node *n, *found = NULL;

	while (p) {
		n = rb_entry(p, struct ordered_node, node);
		if (n->number > number) {
			found = n;
			p = p->rb_left;
		} else {
			p = p->rb_right;
		}
	}
	return found;
}

#endif /* SOCKSPLICE_ORDERED_H */
