/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - helpers of the files of the probe
 *
 * The probe asks a GPU and its driver the questions on which defaults of the
 * project depend; Documentation/gpu.md says which decisions the answers make.
 *
 * Some questions take several processes.  A part starts them as *roles*: this
 * program again, with a socket for fixed messages and file descriptors.  A role
 * ends when the part closes the socket, and dies with the part.
 */
#ifndef TESTS_GPU_PROBE_H
#define TESTS_GPU_PROBE_H

#include "tests/gpu/gpu.h"
#include "tests/gpu/probe_args.h"

/* Device code of the probe. */
extern const unsigned char probe_image[];

/* ---- roles ---- */

#define ROLE_ARGS	6

/**
 * struct role_msg - a message between a part and a role
 * @what: a word that both know, or an answer's CUresult
 * @arg:  numbers
 * @v:    figures
 */
struct role_msg {
	s64	what;
	u64	arg[ROLE_ARGS];
	double	v[ROLE_ARGS];
};

/**
 * struct role - a process that a part started
 * @pid:   its process
 * @pidfd: readable when it is gone
 * @sock:  the part's end
 */
struct role {
	pid_t	pid;
	int	pidfd;
	int	sock;
};

/* Start the role @name; @env: "NAME=value" or NULL. */
void role_start(struct role *r, const char *name, const char *env);

/* Send @m, and @fd unless it is -1; the caller keeps its own copy. */
void role_send(int sock, const struct role_msg *m, int fd);

/*
 * Wait for the next message; @fd gets its descriptor, or -1.  Return: false when
 * the other side is gone or sent nothing for @ms.
 */
bool role_recv(int sock, struct role_msg *m, int *fd, int ms);

/* Send a message and wait for the answer; without an answer end the part. */
void role_ask(struct role *r, struct role_msg *m, int fd);

/* Send SIGKILL.  Return: microseconds until its pidfd is readable. */
double role_kill(struct role *r);

/* Close the socket and wait; send SIGKILL after a while. */
void role_end(struct role *r);

/* Entry of a role's process; @sock is its end. */
struct role_entry {
	const char	*name;
	void		(*run)(int sock);
};
extern const struct role_entry self_roles[], vmm_roles[], die_roles[],
	share_roles[];

/* ---- kernels, with grids that fill the device ---- */

/* gpu_open() and the probe's device code. */
void probe_open(struct gpu *g);

void probe_fill(struct gpu *g, CUdeviceptr to, u64 bytes, u64 seed);

/* Write @nr numbers of bf16, a multiple of 4, that no product overflows. */
void probe_fill_bf16(struct gpu *g, CUdeviceptr to, u64 nr, u64 seed);

/* Count words that probe_fill() did not write, and words that are not 0. */
void probe_check(struct gpu *g, CUdeviceptr from, u64 bytes, u64 seed,
		 u64 *wrong, u64 *not_zero);

/* Start p_spin on all multiprocessors. */
void probe_spin(struct gpu *g, CUstream s, const struct p_spin_args *a);

/* Pinned host memory, and device memory without a handle. */
void *probe_host(struct gpu *g, u64 bytes);
CUdeviceptr probe_device(struct gpu *g, u64 bytes);

/* @of bytes, or few in a tiny run; a multiple of 2 MiB. */
u64 probe_bytes(u64 of);

/* ---- parts ---- */

void part_self(void);
void part_cost(void);
void part_die(void);
void part_back(void);
void part_park(void);
void part_guard(void);
void part_fresh(void);
void part_copyshare(void);
void part_wait(void);
void part_turns(void);
void part_mps(void);
void part_layout(void);
void part_copies(void);
void part_ceilings(void);

/* ---- ceilings, for figures that are shares of them ---- */

/* GB/s of plain reads, with the best grid. */
double ceiling_read(struct gpu *g);

/* GB/s of a copy on the device; bytes read and written both count. */
double ceiling_copy(struct gpu *g);

/* TFLOP/s of a product of bf16, 8192 cubed, by cuBLASLt; 0 without it. */
double ceiling_gemm(struct gpu *g);

/* Microseconds of an empty node of a graph. */
double ceiling_node(struct gpu *g);

#endif /* TESTS_GPU_PROBE_H */
