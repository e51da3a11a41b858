/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - ask a program for the layout of its arena
 */
#ifndef KVMM_HOLD_PROBE_H
#define KVMM_HOLD_PROBE_H

#include <poll.h>
#include <sys/types.h>

#include <kvmm/types.h>

#define PROBE_MS	5000

/* Limits on the program that is asked: x(name, value, text). */
#define PROBE_LIMITS(x)							\
	x(AS,		1ul << 30,	"1 GiB of address space")	\
	x(CPU,		5ul,		"5 s of CPU time")		\
	x(FSIZE,	0ul,		"files of 0 bytes")		\
	x(NOFILE,	64ul,		"64 descriptors")		\
	x(NPROC,	0ul,		"no process or thread of its own, unless it is uid 0") \
	x(CORE,		0ul,		"no core dump")

/**
 * struct probe - a program that is being asked
 * @pid: of the program; 0: none
 * @out: its output; -1: none
 * @end: time until which it may answer, in ms
 */
struct probe {
	pid_t	pid;
	int	out;
	u64	end;
	char	text[64];
	u32	have;
};

void probe_init(struct probe *p);

/**
 * probe_start() - run a program, as @user, with next to no rights
 * @fd:   of the program; stays the caller's
 * @user: that kvmm changes to; NULL: its default
 *
 * Return: 0 or a negative errno.
 */
int __must_check probe_start(struct probe *p, int fd, const char *user);

/**
 * probe_take() - has the program answered?
 * @layout: takes the answer
 *
 * Never waits.
 * Return: 0; -EAGAIN: not yet; -ENOEXEC: it ended, or its time was over, without
 * an answer; -EACCES: it may not be executed.
 */
int __must_check probe_take(struct probe *p, u64 *layout);

/* probe_cancel() - end the program, if there is one */
void probe_cancel(struct probe *p);

#endif /* KVMM_HOLD_PROBE_H */
