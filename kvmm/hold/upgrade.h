/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upgrade.h - another program as kvmm
 */
#ifndef KVMM_HOLD_UPGRADE_H
#define KVMM_HOLD_UPGRADE_H

#include "kvmm/hold/hold.h"
#include "kvmm/hold/probe.h"

/**
 * struct upgrade - files of programs of kvmm; -1: the one beside hold
 * @probe:     of the program that is asked
 * @asked:     the question of kvmm
 * @candidate: file of the program that is asked; -2: none
 * @user:      that kvmm changes to; NULL: its default
 * @runs:      file of the child
 * @next:      file of the next child, if this one makes room; -2: none
 * @last:      file of the child before, while this one did no work; -2: none
 */
struct upgrade {
	struct probe		probe;
	struct hold_record	asked;
	int			candidate;
	const char		*user;
	int			runs;
	int			next;
	int			last;
};

void upgrade_init(struct upgrade *u, const char *user);

/**
 * upgrade_ask() - kvmm asks for another program
 * @asked: HOLD_UPGRADE
 * @fd:    file of the program, taken over; -1: none came
 * @r:     takes the answer, if there is one
 *
 * Return: whether there is an answer already; else upgrade_work() has it.
 */
bool upgrade_ask(struct upgrade *u, const struct hold_record *asked, int fd,
		 struct hold_record *r);

/**
 * upgrade_work() - has the program answered?
 *
 * Call it when @probe.out can be read, and at @probe.end; never waits.
 * Return: whether @r is an answer for kvmm.
 */
bool upgrade_work(struct upgrade *u, struct hold_record *r);

/* upgrade_cancel() - drop the open question and the next program */
void upgrade_cancel(struct upgrade *u);

/**
 * upgrade_done() - a child has ended
 * @status: as of waitpid()
 * @works:  it did its work
 *
 * Return: true when another program is to be started at once: the one that the
 * child made room for or, if the child did no work, the one before.
 */
bool upgrade_done(struct upgrade *u, int status, bool works);

/* upgrade_exec() - become the program, if it is not the one beside hold */
void upgrade_exec(const struct upgrade *u, char *const argv[]);

#endif /* KVMM_HOLD_UPGRADE_H */
