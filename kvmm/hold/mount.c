// SPDX-License-Identifier: Apache-2.0
/*
 * mount.c - hold's part of kvmm-proc
 *
 * kvmm-proc outlives a kvmm, as the sockets do: hold starts it when the first kvmm
 * serves, and keeps it.  If a signal ended it, hold starts it again, at once the
 * first time; the new one removes the mount that the dead one left.  If it ended
 * by itself, it logged the reason, and hold does not start it again: there is no
 * /dev/fuse, or an operator unmounted its files, and it serves no metrics.
 *
 * Unmounting needs rights that a running kvmm-proc has dropped.  So at the end
 * hold kills it and starts it once more with --unmount.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/hold/mount.h"

#define BACKOFF_MIN_MS	100
#define BACKOFF_MAX_MS	5000
#define LONG_LIFE_MS	2000
#define UNMOUNT_MS	5000

void mount_init(struct mount *m, const struct kvmm_options *o,
		const sigset_t *old_mask)
{
	char *slash;
	int err = 0;

	m->pidfd = -1;
	m->old_mask = old_mask;
	m->sandbox = o->sandbox;
	m->user = o->proc_user;
	m->log_format = o->log_format;
	if (o->socket)
		err = kv_rundir_socket(o->socket, KV_ATTACH_SOCKET, m->dir,
				       sizeof(m->dir));
	else
		err = kv_rundir(m->dir, sizeof(m->dir));
	slash = o->socket ? strrchr(m->dir, '/') : NULL;
	if (slash)
		*slash = '\0';
	else if (o->socket)
		strcpy(m->dir, ".");
	m->mounts = !err && (o->proc == KVMM_PROC_ON ||
			     (o->proc == KVMM_PROC_AUTO &&
			      kv_rundir_is_system(m->dir)));
	/* kvmm checks the address, before it serves. */
	m->metrics = !err && strcmp(o->metrics, "off") ? o->metrics : NULL;
	m->wanted = m->mounts || m->metrics;
}

static void __noreturn mount_exec(const struct mount *m, pid_t parent,
				  bool unmount)
{
	static const char * const sandbox[] = { "on", "log", "off" };
	char box[32], format[32], user[128], metrics[128];
	char *argv[] = {
		(char *)m->exe, (char *)"--dir", (char *)m->dir, box, format,
		(char *)(m->mounts ? "--mount=on" : "--mount=off"), NULL, NULL,
		NULL,
	};
	u32 n = 6;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EX_OSERR);
	sigprocmask(SIG_SETMASK, m->old_mask, NULL);
	snprintf(box, sizeof(box), "--sandbox=%s",
		 sandbox[min(m->sandbox, (u32)SANDBOX_OFF)]);
	snprintf(format, sizeof(format), "--log-format=%s",
		 kv_log_format_name(m->log_format));
	snprintf(user, sizeof(user), "--user=%s", m->user ? m->user : "");
	if (m->user)
		argv[n++] = user;
	snprintf(metrics, sizeof(metrics), "--metrics=%s",
		 m->metrics ? m->metrics : "");
	if (unmount)
		argv[n] = (char *)"--unmount";
	else if (m->metrics)
		argv[n] = metrics;
	execv(m->exe, argv);
	pr_err("%s cannot be started: %s: install kvmm-proc beside kvmm-hold, or give --proc off and --metrics off",
	       m->exe, strerror(errno));
	_exit(EX_OSERR);
}

/* Return: 0, or -errno: there is no child. */
static int mount_fork(struct mount *m, bool unmount)
{
	const pid_t parent = getpid();
	int err;

	m->pid = fork();
	if (!m->pid)
		mount_exec(m, parent, unmount);
	if (m->pid < 0)
		return -errno;
	m->pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
	if (m->pidfd >= 0)
		return 0;
	err = -errno;
	kill(m->pid, SIGKILL);
	waitpid(m->pid, NULL, 0);
	return err;
}

static void mount_start(struct mount *m)
{
	int err = mount_fork(m, false);

	m->born = kv_now_ms();
	if (err) {
		pr_warn("kvmm-proc cannot be started: %s: tried again",
			strerror(-err));
		m->start_at = m->born + BACKOFF_MAX_MS;
		return;
	}
	m->began = true;
}

/* Plan the next start, after a signal ended kvmm-proc. */
static void mount_again(struct mount *m, int status)
{
	if (kv_now_ms() - m->born >= LONG_LIFE_MS)
		m->backoff = 0;
	pr_warn("kvmm-proc was ended by signal %d (%s): started again in %u ms",
		WTERMSIG(status), strsignal(WTERMSIG(status)), m->backoff);
	m->start_at = kv_now_ms() + m->backoff;
	m->backoff = m->backoff ? min(2 * m->backoff, (u32)BACKOFF_MAX_MS) :
				  BACKOFF_MIN_MS;
}

static void mount_bury(struct mount *m)
{
	int status;

	if (m->pidfd < 0 || waitpid(m->pid, &status, WNOHANG) != m->pid)
		return;
	close(m->pidfd);
	m->pidfd = -1;
	m->ended = !WIFSIGNALED(status);
	if (!m->ended)
		mount_again(m, status);
}

void mount_work(struct mount *m, bool serves)
{
	if (!m->wanted)
		return;
	mount_bury(m);
	if (m->pidfd < 0 && !m->ended && (serves || m->began) &&
	    kv_now_ms() >= m->start_at)
		mount_start(m);
}

u64 mount_deadline(const struct mount *m)
{
	return m->wanted && m->pidfd < 0 && !m->ended && m->began ?
		m->start_at : 0;
}

void mount_exit(struct mount *m)
{
	struct pollfd p = { .fd = m->pidfd, .events = POLLIN };

	if (!m->began)
		return;
	if (m->pidfd >= 0) {
		kill(m->pid, SIGKILL);
		(void)poll(&p, 1, UNMOUNT_MS);
		(void)waitpid(m->pid, NULL, WNOHANG);
		close(m->pidfd);
	}
	m->pidfd = -1;
	if (!m->mounts || mount_fork(m, true))
		return;
	p.fd = m->pidfd;
	if (poll(&p, 1, UNMOUNT_MS) != 1)
		pr_warn("%s/proc: is not unmounted yet", m->dir);
	(void)waitpid(m->pid, NULL, WNOHANG);
	close(m->pidfd);
	m->pidfd = -1;
}
