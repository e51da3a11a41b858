/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell.h - a small shell around the core, for fuzz targets
 *
 * One core with all tiers, three clients of three tenants at most.  Orders of the
 * core are noted and answered when the input says so, in any order, also with a
 * failure.  Blocks have 16 tokens and 1 KiB, extents 4 KiB.
 *
 * The first shell_begin() makes the core, attaches clients and keeps a copy of
 * all memory; later ones put the copy back, so an input costs little more than
 * its requests.
 */
#ifndef TESTS_FUZZ_SHELL_H
#define TESTS_FUZZ_SHELL_H

#include "kvmm/core/core.h"
#include "tests/fuzz/fuzz.h"

#define SHELL_TOKENS	16u
#define SHELL_EXTENT	4096ull
#define SHELL_EXTENTS	24u
#define SHELL_CLIENTS	3u
#define SHELL_SEQS	16u
#define SHELL_TABLES	24u
#define SHELL_EVENTS	16u
#define SHELL_HANDLES	32u
#define SHELL_TODO	512u
#define SHELL_ARGS	2048u		/* bytes of arguments */
#define SHELL_RESULTS	(1024u * 32)	/* bytes of the largest answer */
#define SHELL_MS	1000000ull

enum shell_client_state {
	SHELL_NONE,
	SHELL_ALIVE,
	SHELL_DETACHED,
	SHELL_DEAD,
};

/**
 * struct shell_client - one client
 * @killed:  the core has ordered its end
 * @handles: the last SHELL_HANDLES handles that it was given
 * @pending: generations of extents to be acknowledged, 0: none
 */
struct shell_client {
	enum shell_client_state	state;
	bool			killed;
	u32			id;
	u32			tenant;
	u64			number;
	u64			step;
	u64			handles[SHELL_HANDLES];
	u32			nr_handles;
	u32			pending[SHELL_EXTENTS];
	struct kvmm_daemon_ctl	ctl;
	struct kvmm_seq_status	seqs[SHELL_SEQS];
	struct kvmm_extent_status extents[SHELL_EXTENTS];
	struct kvmm_table_page	tables[SHELL_TABLES];
	struct kvmm_event	events[SHELL_EVENTS];
};

/* Orders of the core that are not answered yet. */
struct shell_todo {
	u64	id[SHELL_TODO];
	u32	nr;
};

struct shell {
	struct core_config	cfg;
	struct core		*core;
	u64			now;
	u32			creating[SHELL_EXTENTS];
	u32			ghosts[4];	/* by tenant */
	struct shell_todo	copies;
	struct shell_todo	ios;
	struct shell_client	cl[SHELL_CLIENTS];
	u64			args[SHELL_ARGS / 8];
	u64			results[SHELL_RESULTS / 8];
};

extern struct shell shell;

/* The shell's configuration: sizes, pointers, tiers. */
void shell_config(struct core_config *cfg);

/* An attach message that is right in every field. */
void shell_attach_req(struct kvmm_attach_req *req, u32 domain);

/* Begin an input in the state that @setup made from a fresh core. */
void shell_begin(void (*setup)(void));
/* Run the walkers; they must find no fault. */
void shell_check(void);

/* Return: the client, or NULL when it was refused. */
struct shell_client *shell_attach(u32 tenant,
				  const struct kvmm_attach_req *req);
void shell_dead(struct shell_client *cl);
void shell_quiet(struct shell_client *cl);

/* Check and execute a request; results go to shell.results. */
int shell_request(struct shell_client *cl, const struct kvmm_sqe *sqe,
		  const void *args);

/* Answer order number @n of the core.  Return: false: there is none. */
bool shell_created(u32 n, int status);
bool shell_copied(u32 n, int status);
bool shell_io_done(u32 n, int status);
/* EXTENT_ACK of extents that were sent or revoked, as an honest client does. */
bool shell_ack(struct shell_client *cl);
/* Answer all orders, until none is left. */
void shell_settle(void);

/* End all clients, answer all orders: all memory must have come back. */
void shell_end(void);

/* ---- request.c ---- */

/**
 * fuzz_request() - decode a plausible request
 * @seqs:    status records of the client, @nr_seqs of them
 * @handles: the last SHELL_HANDLES of the @nr_handles handles it was given, if any
 * @step:    the client's last step; raised for a STEP_BEGIN
 * @args:    room for SHELL_ARGS bytes, 8-byte aligned
 *
 * Most fields are right, some are not, and any byte may be changed after that.
 * sqe->number is left to the caller.
 */
void fuzz_request(struct fuzz *f, const struct kvmm_seq_status *seqs,
		  u32 nr_seqs, const u64 *handles, u32 nr_handles, u64 *step,
		  struct kvmm_sqe *sqe, void *args);

#endif /* TESTS_FUZZ_SHELL_H */
