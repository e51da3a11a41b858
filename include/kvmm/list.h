/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.h - rings of members that are embedded in structures
 *
 * The head is a member like the others; an empty ring is a head that points
 * at itself, and so is a member that is in no ring.  Nothing is allocated and
 * nothing is locked: a ring belongs to one thread.
 */
#ifndef KVMM_LIST_H
#define KVMM_LIST_H

#include <kvmm/types.h>

struct list {
	struct list *prev;
	struct list *next;
};

#define LIST_INIT(name)	{ &(name), &(name) }

static inline void list_init(struct list *l)
{
	l->prev = l;
	l->next = l;
}

/* True for a head without members, and for a member that is in no ring. */
static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/* Put @l last in the ring of @head; it must be in none. */
static inline void list_add_tail(struct list *head, struct list *l)
{
	struct list *last = head->prev;

	l->prev = last;
	l->next = head;
	last->next = l;
	head->prev = l;
}

/* Take @l out of its ring, if it is in one. */
static inline void list_del(struct list *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}

#define list_entry(l, type, member)	container_of(l, type, member)

/* Walk over all members; the current one may be taken out meanwhile. */
#define list_for_each(head, it, tmp)					\
	for ((it) = (head)->next, (tmp) = (it)->next; (it) != (head);	\
	     (it) = (tmp), (tmp) = (it)->next)

#endif /* KVMM_LIST_H */
