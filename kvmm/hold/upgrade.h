/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upgrade.h - another program as kvmm
 */
#ifndef KVMM_HOLD_UPGRADE_H
#define KVMM_HOLD_UPGRADE_H

#include "kvmm/hold/hold.h"

/**
 * struct upgrade - which file kvmm is; -1: the one beside hold
 * @runs:  of the child
 * @next:  of the one that comes when the child makes room; -2: none
 * @last:  of the one before, while the child has not done any work; -2: none
 */
struct upgrade {
	int	runs;
	int	next;
	int	last;
};

void upgrade_init(struct upgrade *u);

/**
 * upgrade_ask() - kvmm asks for another program
 * @r:  HOLD_UPGRADE; takes the answer
 * @fd: its file, taken over; -1: none came
 */
void upgrade_ask(struct upgrade *u, struct hold_record *r, int fd);

/**
 * upgrade_done() - a child has ended
 * @status: as of waitpid()
 * @works:  it did its work
 *
 * Return: true when another program is to be started at once: the one that it
 * made room for, or, if that came to nothing, the one before.
 */
bool upgrade_done(struct upgrade *u, int status, bool works);

/* upgrade_exec() - become the program, if it is not the one beside hold */
void upgrade_exec(const struct upgrade *u, char *const argv[]);

#endif /* KVMM_HOLD_UPGRADE_H */
