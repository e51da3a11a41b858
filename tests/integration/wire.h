/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - a client that speaks the ABI by hand
 *
 * It does what libkvmm never would.  Its functions do not assert: the death of
 * the daemon, or the expulsion of this client, is an answer like any other.
 */
#ifndef TESTS_WIRE_H
#define TESTS_WIRE_H

#include <sys/types.h>

#include <kvmm/ring.h>
#include <kvmm/types.h>
#include <uapi/kvmm.h>

#define WIRE_EXTENTS	64

/**
 * struct wire - one attachment
 * @fd:     segment C, segment D, doorbell
 * @tail:   entries put into the ring
 * @taken:  completions taken
 * @number: of the last request
 * @step:   of the last begun step
 * @ext:    extents received, with their descriptors
 */
struct wire {
	int				sock;
	int				fd[3];
	struct kvmm_attach_rep		rep;
	char				*c;
	const char			*d;
	struct kvmm_client_ctl		*ctl;
	const struct kvmm_daemon_ctl	*dctl;
	u32				tail;
	u32				taken;
	u64				number;
	u64				step;
	u32				nr_ext;
	struct {
		int			fd;
		u32			extent;
		u32			generation;
	}				ext[WIRE_EXTENTS];
};

/* A request that is granted, for a small model in @domain. */
void wire_request(struct kvmm_attach_req *req, const char *domain);
/* Connect a socket of @type to the path.  Return: the socket or -errno. */
int wire_connect(const char *path, int type);
/* Send bytes with @nr_fds descriptors, without waiting.  Return: 0 or -errno. */
int wire_send(int sock, const void *buf, size_t len, const int *fds,
	      u32 nr_fds);
/* Attach.  Return: 0 or an error. */
int wire_attach(struct wire *w, const char *path,
		const struct kvmm_attach_req *req);
void wire_close(struct wire *w);
/* Does the daemon still serve the client? */
bool wire_alive(const struct wire *w);

/* Put an entry into the ring; fields that are not given are 0. */
struct kvmm_sqe *wire_put(struct wire *w, u16 op, u32 nr, const void *args,
			  u32 bytes);
/* Show the daemon all entries, and wake it. */
void wire_publish(struct wire *w);
void wire_bell(const struct wire *w);
/* The next completion within @ms: its results or NULL; its status in *@status. */
const void *wire_take(struct wire *w, u32 ms, int *status);
/* One request and its answer.  Return: its status; -ETIMEDOUT: no answer came. */
int wire_call(struct wire *w, u16 op, u32 nr, const void *args, u32 bytes,
	      void *res, u32 res_bytes);
/* Send DETACH and wait for the answer.  Return: its status, or -ETIMEDOUT. */
int wire_detach(struct wire *w);
/* Take the extents that have arrived, and acknowledge them if @honest. */
void wire_extents(struct wire *w, bool honest);
/* Open a sequence of @tokens and wait until it is READY.  Return: 0 if it is not. */
u64 wire_seq(struct wire *w, u32 tokens, u32 salt);
/* Begin a step of the next token of @seq.  Return: 0 if it was granted. */
int wire_step(struct wire *w, u64 seq);

#endif /* TESTS_WIRE_H */
