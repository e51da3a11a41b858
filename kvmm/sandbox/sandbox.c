// SPDX-License-Identifier: Apache-2.0
/*
 * sandbox.c - the order in which a process drops its rights
 *
 * Order matters.  Groups and user change first, which needs capabilities; then the
 * capabilities go; then comes no_new_privs, without which only root may do the
 * rest; then Landlock.  All this holds for the calling thread and those that it
 * starts.  The filter comes last and holds for every thread at once, so that its
 * list need not have the calls that start threads.
 *
 * If user or capabilities cannot be changed, the program ends: it would have more
 * rights than the operator believes.  If the kernel has no Landlock or seccomp, as
 * in some containers, the log has one line.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/sandbox.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED	1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED	1
#endif
#ifndef SANITIZED
#define SANITIZED	0
#endif

/* Defined if the program is built to count the lines that it runs. */
extern void __gcov_dump(void) __attribute__((weak));

/* The reason why this program cannot have a sandbox, or NULL. */
static const char *sandbox_hindered(void)
{
	if (SANITIZED)
		return "built with a sanitizer, which looks at the process in ways of its own";
	if (__gcov_dump)
		return "built to count what runs, which writes files at the end";
	return NULL;
}

static int drop_failed(const char *what, int err)
{
	pr_err("%s: %s: start it with these rights, or with --sandbox=off",
	       what, strerror(-err));
	return err;
}

int sandbox_prepare(struct sandbox *sb)
{
	const char *why = sandbox_hindered();
	int err;

	/* sandbox_drop() logs it: a refused start has one line only. */
	if (sb->mode != SANDBOX_OFF && why) {
		sb->hindered = why;
		sb->mode = SANDBOX_OFF;
	}
	if (sb->mode == SANDBOX_OFF)
		return 0;
	err = sandbox_find_user(sb);
	if (err)
		return err;
	err = sandbox_compile(sb->who, sb->mode == SANDBOX_LOG);
	return err ? drop_failed("the list of system calls cannot be made",
				 err) : 0;
}

/* A change of user clears PR_SET_PDEATHSIG: set it again. */
static int parent_watch(pid_t parent, int sig)
{
	if (!sig)
		return 0;
	if (prctl(PR_SET_PDEATHSIG, sig))
		return -errno;
	return getppid() == parent ? 0 : -ESRCH;
}

static void text_add(struct sandbox *sb, const char *text)
{
	const size_t used = strlen(sb->text);

	snprintf(sb->text + used, sizeof(sb->text) - used, "%s", text);
}

static void text_rights(struct sandbox *sb)
{
	char user[160];

	if (sb->change)
		snprintf(user, sizeof(user), "user %s%s%u",
			 sb->name, *sb->name ? ", uid " : "",
			 (unsigned int)sb->uid);
	else if (sb->root && sb->dflt)
		snprintf(user, sizeof(user), "still uid 0: there is no user %s here",
			 sb->dflt);
	else
		snprintf(user, sizeof(user), "user mode, uid %u",
			 (unsigned int)getuid());
	text_add(sb, user);
	if (sb->root)
		text_add(sb, sb->who & SANDBOX_kvmm ?
			 "; no capability but kill" : "; no capability");
	if (sb->landlock)
		snprintf(user, sizeof(user), "; Landlock %d", sb->landlock);
	else
		snprintf(user, sizeof(user), "; no Landlock here");
	text_add(sb, user);
}

/* Change the user and drop capabilities; they are root's until then. */
static int drop_privileges(const struct sandbox *sb)
{
	int err = sandbox_keep_bounds(0);

	if (err)
		return drop_failed("the bounding set cannot be emptied", err);
	if (sb->change) {
		/* Keep capabilities over the change, until the next step. */
		if (prctl(PR_SET_KEEPCAPS, 1))
			err = -errno;
		if (!err)
			err = sandbox_change_user(sb);
		if (err)
			return drop_failed("the user cannot be changed", err);
	}
	err = sandbox_keep_caps(sb->who, 0);
	return err ? drop_failed("capabilities cannot be given up", err) : 0;
}

int sandbox_shed(const char *user, const char *dflt)
{
	struct sandbox sb = { .user = user, .dflt = dflt };
	int err = sandbox_find_user(&sb);

	if (!err)
		err = sandbox_raise_caps();
	if (!err)
		err = drop_privileges(&sb);
	if (!err && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		err = -errno;
	return err;
}

/* @unlinks was opened before, since the new user may not reach it. */
static int drop_files(struct sandbox *sb, int unlinks)
{
	int err;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return drop_failed("no_new_privs", -errno);
	err = sandbox_landlock(unlinks, sb->who & SANDBOX_kvmm, sb->devices);
	/* Landlock is off in this boot, or denied to a container. */
	if (err == -EOPNOTSUPP || err == -ENOSYS || err == -EPERM)
		err = 0;
	if (err < 0)
		return drop_failed("Landlock", err);
	sb->landlock = err;
	return 0;
}

int sandbox_drop(struct sandbox *sb)
{
	const pid_t parent = getppid();
	int sig = 0, unlinks = -1, err;

	if (sb->hindered)
		pr_info("sandbox: off: %s", sb->hindered);
	if (sb->mode == SANDBOX_OFF)
		return 0;
	sb->root = !geteuid();
	(void)prctl(PR_GET_PDEATHSIG, &sig);
	if (sb->unlinks)
		unlinks = open(sb->unlinks, O_PATH | O_CLOEXEC);
	err = drop_privileges(sb);
	if (!err)
		err = drop_files(sb, unlinks);
	if (unlinks >= 0)
		close(unlinks);
	if (err)
		return err;
	err = parent_watch(parent, sig);
	if (err)
		return drop_failed("the parent has ended", err);
	text_rights(sb);
	return 0;
}

static u32 nr_calls_of(u32 who)
{
	u32 i, nr = 0;

	for (i = 0; i < sandbox_nr_calls; i++)
		nr += !!(sandbox_calls[i].who & who);
	return nr;
}

int sandbox_filter(struct sandbox *sb)
{
	const bool only_log = sb->mode == SANDBOX_LOG;
	char text[64];
	int err;

	if (sb->mode == SANDBOX_OFF) {
		pr_info("sandbox: off: it keeps user, capabilities and all system calls");
		return 0;
	}
	err = sandbox_install(only_log);
	if (err == -ENOENT || err == -ENOMEM)
		return drop_failed("the list of system calls", err);
	if (err)
		pr_warn("system calls are not filtered: %s: this kernel or container has no seccomp filters",
			strerror(-err));
	snprintf(text, sizeof(text), err ? "; calls not filtered" : only_log ?
		 "; others than %u calls are logged" : "; %u calls",
		 nr_calls_of(sb->who));
	text_add(sb, text);
	pr_info("sandbox: %s", sb->text);
	return 0;
}
