/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - the shell hears of each name that enters, moves in and leaves the index
 *
 * A shell that wants to hear passes memory and a struct core_names_ops to
 * core_names_attach().  Then the core gives it a record for each name that is cached,
 * that is held by another tier from now on, or that is gone.  The records tell the
 * whole state: first that no name is known, then each name that was there, then the
 * changes.  A name is told after its parent.
 *
 * When the shell has no room for a record, the record is lost, and so are all after it.
 * core_names_go_on() then begins anew: no name is known, then each name that is there.
 *
 * Context: as core.h.
 */
#ifndef KVMM_CORE_NAMES_H
#define KVMM_CORE_NAMES_H

#include "kvmm/core/core.h"

/* The highest tier that holds the content of a name. */
enum core_place {
	CORE_PLACE_NONE,
	CORE_PLACE_DEVICE,
	CORE_PLACE_HOST,
	CORE_PLACE_AREA,
	NR_CORE_PLACES
};

/**
 * struct core_name - a change of the place of a name
 * @hash:   names the block: never 0, and of the domain alone
 * @parent: hash of the prefix before it; 0: it begins a prompt, or the group has a
 *          window or records
 * @domain: its number, which a later domain may get
 * @serial: number of the domain among all ever made
 * @name:   of the domain
 * @group:  layer group
 * @kind:   KVMM_GROUP_*
 * @window: of the group
 * @from:   CORE_PLACE_* that the last record of the name gave; NONE: the name is new
 * @to:     CORE_PLACE_*; NONE: the name is gone, and the next members are 0
 * @salted: the prompt has a salt, so its ids alone do not name it
 * @nr_ids: token ids of the block
 * @ids:    these; valid during the call
 */
struct core_name {
	u64		hash;
	u64		parent;
	const char	*name;
	u32		domain;
	u32		serial;
	u32		group;
	u32		kind;
	u32		window;
	u32		from;
	u32		to;
	u32		salted;
	u32		nr_ids;
	const u32	*ids;
};

/**
 * struct core_names_ops - functions of the shell
 * @put:  take a record; NULL: no name is known from now on.  False: there is no room
 * @room: is there room for many records?
 *
 * Neither may call back into the core.
 */
struct core_names_ops {
	bool	(*put)(void *arg, const struct core_name *name);
	bool	(*room)(void *arg);
};

/* names.c */
u64 core_names_bytes(const struct core *core);
void core_names_attach(struct core *core, void *mem, const struct core_names_ops *ops,
		       void *arg);
void core_names_again(struct core *core);
bool core_names_unfinished(const struct core *core);
bool core_names_go_on(struct core *core);

#endif /* KVMM_CORE_NAMES_H */
