/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_party.h - a client of a node whose pool is on the stand-in's GPU
 *
 * One rig a test.  MUST() is for what children of a test do, too.
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
 * @byte: what makes its words different from those of others
 */
struct party {
	struct kvmm	*k;
	u64		seq[MAX_SEQS];
	u32		nr;
	u64		byte;
	u64		step;
};

/* In a child of a test: a failure is its exit status, and a line. */
#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
		_exit(1);						\
	}								\
} while (0)

/*
 * Set the environment up for a node on the stand-in, with a directory of its
 * own, which cuda_teardown() removes; where it is, and the stand-in's counts.
 */
extern char cuda_dir[128], cuda_counts[RIG_PATH];
void cuda_setup(void);
void cuda_teardown(void);

/* What the node has said on stderr, until the next call; wait until it has said this. */
char *node_log(void);
void await_logged(const char *what);

/* Attach; @tenant is NULL without any, @byte is what its words are made of. */
void party_join(struct party *p, const char *tenant, u64 byte);
/* Close what it has, and detach. */
void leave(struct party *p);
/* Look at events and extents, for 2 ms at most. */
void turn(struct party *p);
u32 state_of(const struct party *p, u32 i);
/* Turn until sequence @i is in this state; false: it takes too long. */
bool await_state(struct party *p, u32 i, u32 state);
/* Open one more and match it.  Return: false: it was refused. */
bool seq_open(struct party *p);
/* Begin its only step and write its words; the step stays open unless @ends. */
void seq_fill(struct party *p, u32 i, bool ends);
/* seq_open() and seq_fill(), waiting in between. */
void seq_make(struct party *p);
/* Its words are there, all of them. */
void words_check(struct party *p, u32 i);
/* KVMM_ADV_PAGEOUT and so on: the status. */
int advise(struct party *p, u32 i, u32 advice);

#endif /* TESTS_CUDA_PARTY_H */
