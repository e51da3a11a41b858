/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_party.h - a client of a node whose pool is on the stand-in's GPU
 *
 * One rig a test.  Children of a test use MUST() too.
 */
#ifndef TESTS_CUDA_PARTY_H
#define TESTS_CUDA_PARTY_H

#include <stdio.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/harness.h"

#define TOKENS		16u
#define TOKEN_BYTES	4096u
#define BLOCK_WORDS	(TOKENS * TOKEN_BYTES / 8)
#define LEN		64u	/* of a sequence: four blocks, one extent */
#define MAX_SEQS	64u
#define ALL		12u	/* sequences: nearly all of the pool */
#define WAIT_MS		20000u

#define SIZES "--backend", "cuda", "--pool-size", "4M", "--extent-size", \
	"256K", "--min-token-bytes", "4096", "--swappiness", "200"

extern struct rig rig;

/**
 * struct party - one attachment, and its sequences
 * @byte: makes its words differ from those of other parties
 */
struct party {
	struct kvmm	*k;
	u64		seq[MAX_SEQS];
	u32		nr;
	u64		byte;
	u64		step;
};

/* For a child of a test: it prints a failed condition and exits with 1. */
#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
		_exit(1);						\
	}								\
} while (0)

/*
 * Set up the environment for a node on the stand-in.  cuda_dir is a new
 * directory, which cuda_teardown() removes; cuda_counts is the path of the
 * stand-in's counts.
 */
extern char cuda_dir[128], cuda_counts[RIG_PATH];
void cuda_setup(void);
void cuda_teardown(void);

/*
 * Text of the node on stderr, valid until the next call; wait until it has
 * these words.
 */
char *node_log(void);
void await_logged(const char *what);

/* Attach; @tenant may be NULL; @byte goes into every word of the party. */
void party_join(struct party *p, const char *tenant, u64 byte);
/* Close its sequences, and detach. */
void leave(struct party *p);
/* Handle events and extents, for 2 ms at most. */
void turn(struct party *p);
u32 state_of(const struct party *p, u32 i);
/* Turn until sequence @i is in this state; false: it takes too long. */
bool await_state(struct party *p, u32 i, u32 state);
/* Open one more sequence and match it.  Return: false: it was refused. */
bool seq_open(struct party *p);
/* Begin its only step and write its words; the step stays open unless @ends. */
void seq_fill(struct party *p, u32 i, bool ends);
/* seq_open() and seq_fill(), waiting in between. */
void seq_make(struct party *p);
/* Check all words of sequence @i. */
void words_check(struct party *p, u32 i);
/* Advise KVMM_ADV_PAGEOUT or the like.  Return: the status. */
int advise(struct party *p, u32 i, u32 advice);

#endif /* TESTS_CUDA_PARTY_H */
