/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.h - the records of block tables
 */
#ifndef KVMM_CORE_BASE_TABLES_H
#define KVMM_CORE_BASE_TABLES_H

#include <uapi/kvmm.h>

#include <kvmm/types.h>

/**
 * struct kv_tab - the block table of a sequence in one layer group
 * @seq:        sequence
 * @group:      layer group
 * @nr_blocks:  table entries, exactly group_blocks() of the sequence's cover and @shift
 * @reserved:   blocks of its reservation that it has not taken yet, one more
 *              with SEQF_COPY
 * @resv_blocks: end of the table indices that the reservation is for
 * @prompt_blocks: in a group with a window: table entries of the prompt, for which the
 *              reservation is renewed as blocks behind the window are given back; 0:
 *              it is not
 * @first_page: first page of the table; CORE_NONE: the table is empty
 * @dirty:      lowest table index that changed since the last result of a step
 * @trimmed:    table indices below it were trimmed: they name no block
 * @trim_want:  value that @trimmed gets when the steps up to @trim_step have
 *              ended
 * @trim_more:  a later, larger value of @trim_want, for when the steps up to
 *              @trim_more_step have ended; 0: none
 * @trim_hash:  name of the last trimmed block: parent of the next block
 * @shift:      in a group of records: entries of a shared record before that of the
 *              position @shift_at, which an open step reads in place of the former; 0
 *              while no step is open
 * @shift_at:   with @shift: first position that the record behind the shared one holds
 */
struct kv_tab {
	u32	seq;
	u32	group;
	u32	nr_blocks;
	u32	reserved;
	u32	resv_blocks;
	u32	first_page;
	u32	last_page;
	u32	dirty;
	u32	trimmed;
	u32	trim_want;
	u32	trim_more;
	u32	prompt_blocks;
	u32	shift;
	u32	shift_at;
	u64	trim_step;
	u64	trim_more_step;
	u64	trim_hash[2];
};

/* An entry of a block table: its type, and a block or lower-tier entry. */
typedef struct {
	u64	val;
} kv_pte_t;

#define PTE_NONE	0ull
#define PTE_PRESENT	1ull
#define PTE_ENTRY	2ull	/* the content is on a lower tier */
#define PTE_TYPE_SHIFT	56

static inline kv_pte_t pte_none(void)
{
	return (kv_pte_t){ .val = PTE_NONE };
}

static inline kv_pte_t pte_present(u32 blk)
{
	return (kv_pte_t){ .val = (PTE_PRESENT << PTE_TYPE_SHIFT) | blk };
}

static inline bool pte_is_present(kv_pte_t pte)
{
	return pte.val >> PTE_TYPE_SHIFT == PTE_PRESENT;
}

static inline kv_pte_t pte_entry(u32 entry)
{
	return (kv_pte_t){ .val = (PTE_ENTRY << PTE_TYPE_SHIFT) | entry };
}

static inline bool pte_is_entry(kv_pte_t pte)
{
	return pte.val >> PTE_TYPE_SHIFT == PTE_ENTRY;
}

static inline u32 pte_block(kv_pte_t pte)
{
	return (u32)pte.val;
}

#define CORE_TABLE_HOPS		10	/* hops that a table page knows */

/**
 * struct kv_tpage - a page of a block table, private to the core
 * @back: the pages 1, 2, 4, ... before it in the chain
 *
 * The copy of the page that the client reads has the same index in segment D.
 */
struct kv_tpage {
	u32		next;
	u32		first;
	u32		back[CORE_TABLE_HOPS];
	kv_pte_t	pte[KVMM_TABLE_ENTRIES];
};

#endif /* KVMM_CORE_BASE_TABLES_H */
