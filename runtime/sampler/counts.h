/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counts.h - struct id_counts, for the files of the sampler
 */
#ifndef KVRT_COUNTS_H
#define KVRT_COUNTS_H

#include "runtime/sampler/adjust.h"

/**
 * struct id_counts - see counts.c
 * @nr:    different ids
 * @most:  most different ids
 * @mask:  number of slots less one
 * @list:  [@nr]
 * @slots: place in @list, from 1; 0: free
 */
struct id_counts {
	u32 nr;
	u32 most;
	u32 mask;
	struct id_count *list;
	u32 *slots;
};

#endif /* KVRT_COUNTS_H */
