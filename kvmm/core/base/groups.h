/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.h - layer groups of a domain, and the tables of a sequence in them
 *
 * Included by base.h alone.
 */
#ifndef KVMM_CORE_BASE_GROUPS_H
#define KVMM_CORE_BASE_GROUPS_H

/* Bytes of KV of a token in the group, all its layers. */
static inline u64 group_token_bytes(const struct kvmm_group *g)
{
	return (u64)g->layers * g->kv_heads * ((u64)g->k_bytes + g->v_bytes +
	       (g->v_bytes ? 2ull : 1ull) * g->scale_bytes);
}

/* The number that is mixed into the name of block @part of a record of group @g. */
static inline u32 part_code(u32 g, u32 part)
{
	return g + part * KVMM_MAX_GROUPS;
}

/* Blocks of group @g that hold so many tokens. */
static inline u32 group_blocks(const struct kv_domain *d, u32 g, u32 tokens)
{
	u32 bt = d->group[g].block_tokens;

	return (tokens / bt + (tokens % bt != 0)) * d->width[g];
}

/* The blocks of group @g that the first @tokens, whole blocks or records, fill. */
static inline u32 group_whole(const struct kv_domain *d, u32 g, u32 tokens)
{
	return tokens / d->group[g].block_tokens * d->width[g];
}

/* The first index of group @g that a step at @len attends to. */
static inline u32 group_first(const struct kv_domain *d, u32 g, u32 len)
{
	u32 window = d->window[g];

	return window && len >= window ? group_whole(d, g, len - window + 1) : 0;
}

/*
 * The most blocks of group @g that a sequence of so many tokens holds at once.  A step
 * has the window before its first token, and the tokens that it writes.
 */
static inline u32 group_most(const struct kv_domain *d, u32 g, u32 tokens)
{
	u64 seen = (u64)d->window[g] + (d->step_tokens ?: d->window[g]);
	u64 most;

	if (!d->window[g])
		return group_blocks(d, g, tokens);
	/* Records of so many tokens may have more blocks than 32 bits tell. */
	most = min(DIV_ROUND_UP(seen, d->group[g].block_tokens) + 1,
		   DIV_ROUND_UP((u64)tokens, (u64)d->group[g].block_tokens));
	return (u32)min(most * d->width[g], (u64)UINT32_MAX);
}

/* group_most() of all groups together. */
static inline u32 domain_most(const struct kv_domain *d, u32 tokens)
{
	u32 g, nr = 0;

	for (g = 0; g < d->nr_groups; g++)
		nr += group_most(d, g, tokens);
	return nr;
}

/* The table of a sequence in group @g. */
static inline struct kv_tab *seq_tab(const struct core *c, const struct kv_seq *s,
				     u32 g)
{
	KV_BUG_ON(g >= KVMM_MAX_GROUPS);
	if (!g)
		return (struct kv_tab *)(uintptr_t)&s->tab;
	return &c->tabs[(u64)seq_index(c, s) * CORE_MORE_GROUPS + g - 1];
}

static inline struct kv_seq *tab_seq(const struct core *c, const struct kv_tab *t)
{
	return &c->seqs[t->seq];
}

static inline struct kv_domain *tab_domain(const struct core *c,
					   const struct kv_tab *t)
{
	return seq_domain(c, tab_seq(c, t));
}

/* Tokens of a block of the table's group. */
static inline u32 tab_tokens(const struct core *c, const struct kv_tab *t)
{
	return tab_domain(c, t)->group[t->group].block_tokens;
}

/* Entries of the table for one block or record of the group. */
static inline u32 tab_width(const struct core *c, const struct kv_tab *t)
{
	return tab_domain(c, t)->width[t->group];
}

/* Tokens that a token of the table's group needs, itself included; 0: all before it. */
static inline u32 tab_window(const struct core *c, const struct kv_tab *t)
{
	return tab_domain(c, t)->window[t->group];
}

/* Does the group have records that each token changes? */
static inline bool tab_is_state(const struct core *c, const struct kv_tab *t)
{
	return tab_domain(c, t)->group[t->group].kind == KVMM_GROUP_STATE;
}

/* The first index of the block or record that holds position @at. */
static inline u32 tab_at(const struct core *c, const struct kv_tab *t, u32 at)
{
	return group_whole(tab_domain(c, t), t->group, at) + t->shift;
}

/* The first index of the block or record with the tokens up to @len, no whole ones. */
static inline u32 tab_tail(const struct core *c, const struct kv_tab *t, u32 len)
{
	return tab_at(c, t, len) - (len <= t->shift_at ? t->shift : 0);
}

/* The first position of the block or record at index @idx. */
static inline u64 tab_pos(const struct core *c, const struct kv_tab *t, u32 idx)
{
	idx = max(idx, t->shift) - t->shift;
	return (u64)(idx / tab_width(c, t)) * tab_tokens(c, t);
}

/* The number of layer groups that the sequence has tables of. */
static inline u32 seq_groups(const struct core *c, const struct kv_seq *s)
{
	return seq_domain(c, s)->nr_groups;
}

/* The table after @t of the sequence, that of the next group. */
static inline struct kv_tab *tab_next(const struct core *c, const struct kv_seq *s,
				      const struct kv_tab *t)
{
	if (t == &s->tab)
		return seq_tab(c, s, 1);
	return (struct kv_tab *)(uintptr_t)(t + 1);
}

/* Each table of the sequence, that of group 0 first; after the loop @t is NULL. */
#define for_each_tab(c, s, t)						\
	for (u32 tabs_ = ((t) = seq_tab(c, s, 0), seq_groups(c, s));	\
	     tabs_ || ((t) = NULL); (t) = --tabs_ ? tab_next(c, s, t) : NULL)

/* Blocks of the table's group that hold so many tokens. */
static inline u32 tab_blocks(const struct core *c, const struct kv_tab *t, u32 tokens)
{
	return group_blocks(tab_domain(c, t), t->group, tokens) + t->shift;
}

/* Each index @i of each table @t of @s that is not trimmed. */
#define for_each_pte(c, s, t, i)					\
	for_each_tab(c, s, t)						\
		for ((i) = (t)->trimmed; (i) < (t)->nr_blocks; (i)++)

/* Table entries that name a block or a lower-tier entry. */
static inline u32 tab_live(const struct kv_tab *t)
{
	return t->nr_blocks - t->trimmed;
}

/*
 * Table entries that views count as mapped: also those that the client trimmed, but not
 * those that the core trimmed behind a window.
 */
static inline u32 tab_shown(const struct core *c, const struct kv_tab *t)
{
	return tab_window(c, t) ? tab_live(t) : t->nr_blocks;
}

/* The same in all groups together. */
static inline u32 seq_live(const struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 nr = 0;

	for_each_tab(c, s, t)
		nr += tab_live(t);
	return nr;
}

/* Reserved blocks that it has not taken yet, of all groups. */
static inline u32 seq_reserved(const struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 nr = 0;

	for_each_tab(c, s, t)
		nr += t->reserved;
	return nr;
}

/* Blocks that the sequence needs to be resident: for its ids, or its tables. */
static inline u32 seq_needs(const struct core *c, const struct kv_seq *s)
{
	return max(domain_most(seq_domain(c, s), s->nr_ids), seq_live(c, s));
}

/* Table entries of all groups, trimmed ones too: the work of a walk. */
static inline u32 seq_entries(const struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;
	u32 nr = 0;

	for_each_tab(c, s, t)
		nr += t->nr_blocks;
	return nr;
}

#endif /* KVMM_CORE_BASE_GROUPS_H */
