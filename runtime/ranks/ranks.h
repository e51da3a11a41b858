/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - the processes of one tensor parallel group
 *
 * A group has 2 to RANKS_MAX processes of one program, the ranks.  Rank 0 leads.  MPI
 * starts the ranks and gives them one window of shared memory.  All later traffic goes
 * through this window: the exchange of a step, messages of the leader, and the bytes of a
 * gather.  MPI is called again only at the end.
 *
 * Every wait is bounded, once ranks_open() has returned.  A rank that ends is noticed
 * within 100 ms, a rank that stands still after timeout_ms.  The first rank that notices
 * it writes the failure into the window, and then all ranks fail with the same line.
 *
 * One thread at a time uses a struct ranks.  ranks_close() of a group that MPI started is
 * called by the thread that called ranks_open().
 */
#ifndef RUNTIME_RANKS_RANKS_H
#define RUNTIME_RANKS_RANKS_H

#include <kvmm/types.h>

#define RANKS_MAX	64u

/* Exit code of the process that a user started, if one of the ranks died. */
#define RANKS_LOST_CODE	79

struct ranks;

/**
 * struct ranks_opts - the group that the caller wants
 * @nr:		number of ranks, 2 to RANKS_MAX
 * @room:	bytes of a rank's room; the same at all ranks
 * @timeout_ms:	the longest wait for a rank; not 0
 */
struct ranks_opts {
	u32	nr;
	u64	room;
	u32	timeout_ms;
};

/**
 * ranks_open() - join the group of this process
 * @out:	set on success
 * @why:	one line on failure
 * @len:	bytes of @why
 *
 * Loads the MPI plugin, starts MPI and makes the window.  All ranks call it.
 *
 * Return: 0; -ENOENT: no plugin, or it cannot be loaded; -ESRCH: this process was not
 * started by mpiexec; -EINVAL: wrong number of ranks, or another size of rooms than that
 * of rank 0; -EXDEV: ranks on several nodes; -EIO: MPI failed; -EPIPE, -ETIMEDOUT: a rank
 * ended or did not come; -ENOMEM.
 */
int ranks_open(const struct ranks_opts *o, struct ranks **out, char *why, size_t len)
	__must_check;

/**
 * ranks_threads() - the same group over threads of one process
 * @nr, @room, @timeout_ms:	as in struct ranks_opts; @nr may be 1
 * @out:	@nr pointers; the thread of rank i uses out[i]
 *
 * It needs no MPI.  Every rank is closed by ranks_close().
 *
 * Return: 0, -EINVAL or -ENOMEM.
 */
int ranks_threads(u32 nr, u64 room, u32 timeout_ms, struct ranks **out) __must_check;

/**
 * ranks_close() - leave the group
 *
 * All ranks call it.  It waits for the others, at most timeout_ms, and ends MPI.  After a
 * failure it waits for nothing and leaves MPI as it is; the process must end then.
 * NULL is allowed.
 */
void ranks_close(struct ranks *r);

/* Change timeout_ms, from the next wait of this rank on. */
void ranks_bound(struct ranks *r, u32 timeout_ms);

/* Number of this rank: 0 is the leader. */
u32 ranks_number(const struct ranks *r);

/* Number of ranks in the group. */
u32 ranks_nr(const struct ranks *r);

/**
 * ranks_room() - where this rank writes the bytes that it shares next
 *
 * The room is aligned to 64 bytes and has the bytes that ranks_open() was told.  Its
 * content is arbitrary.  The address changes with every ranks_share().
 */
void *ranks_room(struct ranks *r);

/**
 * ranks_share() - give the room to all, and wait for the rooms of all
 *
 * All ranks call it the same number of times.
 *
 * Return: 0; -EPIPE: a rank has ended; -ETIMEDOUT: a rank did not come in timeout_ms.
 * After a failure every later call returns the same, at once.
 */
int ranks_share(struct ranks *r) __must_check;

/**
 * ranks_of() - the room that rank @rank gave to the last ranks_share()
 *
 * The bytes stay unchanged until this rank calls the next-but-one ranks_share().
 */
const void *ranks_of(const struct ranks *r, u32 rank);

/**
 * ranks_send() - the leader gives a message of @bytes bytes to all other ranks
 *
 * Returns when the message is in the window.  It waits only if a rank has not taken the
 * previous message, or if the message is longer than the window's piece of 256 KiB.
 *
 * Return: 0; -EINVAL: not the leader; -EPIPE or -ETIMEDOUT as ranks_share().
 */
int ranks_send(struct ranks *r, const void *data, u64 bytes) __must_check;

/**
 * ranks_recv() - take the next message of the leader
 * @buf:	room for @size bytes; NULL is allowed if @size is 0
 * @bytes:	set to the length of the message
 * @wait_ms:	the longest wait for its begin; 0: none
 *
 * Return: 0; -EAGAIN: no message came in @wait_ms; -EMSGSIZE: the message is longer than
 * @size, @bytes has its length, and the next call may take it; -EPIPE: a rank has ended,
 * or the leader has closed the group (then ranks_failure() is NULL); -ETIMEDOUT: a part
 * of the message did not come; -EINVAL: this is the leader.
 */
int ranks_recv(struct ranks *r, void *buf, u64 size, u64 *bytes, u32 wait_ms) __must_check;

/**
 * ranks_gather() - give @bytes bytes, and get those of all ranks
 * @mine:	@bytes bytes; the same number at all ranks
 * @all:	[nr][@bytes], filled at every rank
 *
 * All ranks call it.  It does not touch the rooms of ranks_share().
 *
 * Return: 0, -EPIPE or -ETIMEDOUT as ranks_share().
 */
int ranks_gather(struct ranks *r, const void *mine, u32 bytes, void *all) __must_check;

/**
 * ranks_check() - have all other ranks lived until now?
 *
 * For a rank that waits elsewhere, as an idle leader does.  It does not wait.
 *
 * Return: 0, or the failure, as ranks_share().
 */
int ranks_check(struct ranks *r) __must_check;

/* One line that names the rank (number, pid) and the reason; NULL: no failure. */
const char *ranks_failure(const struct ranks *r);

/**
 * ranks_abort() - end the whole group
 * @why:	one line; NULL: the line of ranks_failure()
 *
 * The other ranks fail with @why.  One rank of the group prints its line on stderr, so
 * that all ranks may call it after one failure.  Over MPI it does not return.  Over
 * threads it returns, and prints nothing.
 */
void ranks_abort(struct ranks *r, const char *why);

/**
 * ranks_kill() - end the whole group without a line, as ranks_abort() does
 *
 * For a rank that has said why.
 */
void ranks_kill(struct ranks *r);

/**
 * ranks_exit_code() - say that this rank ends with @code
 *
 * The process that a user started ends with the code of rank 0.  A rank that dies without
 * this call has failed.
 *
 * Return: the exit code of this process.  It is @code if the user started mpiexec, and 0 if
 * the parent has taken @code: mpiexec prints errors of its own about ranks that fail.
 */
int ranks_exit_code(int code);

/**
 * ranks_launch() - start this program as @nr ranks
 * @argv:	the arguments of main(), with a NULL at the end
 * @why:	one line on failure
 *
 * If @nr is above 1 and no launcher started this process, it runs mpiexec, which starts the
 * same program @nr times with the same arguments.  This process then passes signals on to
 * rank 0, and ends with its exit code.  Does nothing otherwise.
 *
 * Return: 0: there is nothing to launch; -ENOENT: no mpiexec in PATH; another -errno.
 */
int ranks_launch(u32 nr, char **argv, char *why, size_t len) __must_check;

/**
 * ranks_launched_first() - is this the first process of its launcher?
 *
 * Of several processes that find the same error, it prints it.  True without a launcher.
 */
bool ranks_launched_first(void);

/**
 * ranks_launched() - number of ranks that a launcher started, this process among them
 *
 * Return: 0: no launcher started this process; else the number of ranks, or 1 if the
 * launcher does not say how many.
 */
u32 ranks_launched(void);

#endif /* RUNTIME_RANKS_RANKS_H */
