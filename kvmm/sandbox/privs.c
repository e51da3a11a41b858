// SPDX-License-Identifier: Apache-2.0
/*
 * privs.c - users and capabilities
 *
 * Root starts kvmm-hold.  A child of hold begins as root and changes to its own
 * user when it has everything that needs root's rights.  If there is no such user,
 * it stays uid 0 without capabilities: it still owns root's files, but the filter
 * and Landlock keep it from them.
 *
 * Capabilities are dropped from all sets, the bounding set too, so that no program
 * that is executed gets them back.  A capability that was missing before, as in
 * containers, is no failure: the operation that needs it fails and reports that.
 */
#include <cap-ng.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/opts.h>
#include <kvmm/sandbox.h>

#define none	0
#define hold	SANDBOX_hold
#define kvmm	SANDBOX_kvmm
#define both	SANDBOX_both
#define proc	SANDBOX_proc
#define mount	SANDBOX_mount
#define all	SANDBOX_all

const struct sandbox_cap sandbox_caps[] = {
#define x(_name, _keeps, _starts, _why)					\
	{ .name = "CAP_" #_name, .nr = CAP_##_name, .keeps = _keeps,	\
	  .starts = _starts, .why = _why },
	SANDBOX_CAPS(x)
#undef x
};
const u32 sandbox_nr_caps = ARRAY_SIZE(sandbox_caps);

#undef none
#undef hold
#undef kvmm
#undef both
#undef proc
#undef mount
#undef all

/* Parse "UID" or "UID:GID"; without GID the group is UID. */
static bool numbers_parse(const char *s, struct sandbox *sb)
{
	unsigned int uid, gid;
	char end;
	int n = sscanf(s, "%u:%u%c", &uid, &gid, &end);

	if (n != 2) {
		if (sscanf(s, "%u%c", &uid, &end) != 1)
			return false;
		gid = uid;
	}
	sb->uid = uid;
	sb->gid = gid;
	return uid != (uid_t)-1 && gid != (gid_t)-1;
}

/* Find the user to change to; does not change it. */
int sandbox_find_user(struct sandbox *sb)
{
	const char *want = sb->user ? sb->user : sb->dflt;
	const struct passwd *pw;

	sb->change = false;
	if (!want)
		return 0;
	if (geteuid()) {
		if (!sb->user)
			return 0;
		pr_err("user %.60s cannot be had: only root changes its user: leave the option out",
		       sb->user);
		return -EINVAL;
	}
	if (sb->user && numbers_parse(want, sb)) {
		sb->change = sb->uid != 0;
		return 0;
	}
	pw = getpwnam(want);
	if (!pw && !sb->user)
		return 0;
	if (!pw) {
		pr_err("user %.60s: there is none: useradd --system %.60s, or name another one",
		       want, want);
		return -EINVAL;
	}
	sb->uid = pw->pw_uid;
	sb->gid = pw->pw_gid;
	snprintf(sb->name, sizeof(sb->name), "%s", pw->pw_name);
	sb->change = sb->uid != 0;
	return 0;
}

/* Change the user for good: real, effective and saved ids, all groups. */
int sandbox_change_user(const struct sandbox *sb)
{
	if (*sb->name ? initgroups(sb->name, sb->gid) : setgroups(0, NULL))
		return -errno;
	if (setresgid(sb->gid, sb->gid, sb->gid) ||
	    setresuid(sb->uid, sb->uid, sb->uid))
		return -errno;
	/* Check that there is no way back. */
	if (!setresuid((uid_t)-1, 0, (uid_t)-1) || !geteuid() || !getuid())
		return -EPERM;
	return 0;
}

/* Does not fail for capabilities that were missing before. */
int sandbox_keep_bounds(u32 gives)
{
	bool had[ARRAY_SIZE(sandbox_caps)];
	u32 i;

	if (capng_get_caps_process())
		return -EPERM;
	/* Without CAP_SETPCAP the set stays, but no_new_privs covers that. */
	if (!capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP))
		return 0;
	for (i = 0; i < ARRAY_SIZE(sandbox_caps); i++)
		had[i] = capng_have_capability(CAPNG_BOUNDING_SET,
					       sandbox_caps[i].nr);
	capng_clear(CAPNG_SELECT_BOUNDS);
	for (i = 0; i < ARRAY_SIZE(sandbox_caps); i++)
		if (had[i] && (sandbox_caps[i].starts & gives))
			capng_update(CAPNG_ADD, CAPNG_BOUNDING_SET,
				     sandbox_caps[i].nr);
	return capng_apply(CAPNG_SELECT_BOUNDS) ? -EPERM : 0;
}

/*
 * hold keeps the capabilities of its children permitted, but not effective.  If a
 * child gained capabilities when it is executed, the kernel would clear its
 * PR_SET_PDEATHSIG.
 */
int sandbox_keep_caps(u32 who, u32 gives)
{
	bool had[ARRAY_SIZE(sandbox_caps)];
	u32 i;

	if (capng_get_caps_process())
		return -EPERM;
	for (i = 0; i < ARRAY_SIZE(sandbox_caps); i++)
		had[i] = capng_have_capability(CAPNG_PERMITTED,
					       sandbox_caps[i].nr);
	capng_clear(CAPNG_SELECT_CAPS);
	for (i = 0; i < ARRAY_SIZE(sandbox_caps); i++) {
		const struct sandbox_cap *c = &sandbox_caps[i];

		if (had[i] && ((c->keeps & who) || (c->starts & gives)))
			capng_update(CAPNG_ADD, CAPNG_PERMITTED, c->nr);
		if (had[i] && (c->keeps & who))
			capng_update(CAPNG_ADD, CAPNG_EFFECTIVE, c->nr);
	}
	return capng_apply(CAPNG_SELECT_CAPS) ? -EPERM : 0;
}

int sandbox_raise_caps(void)
{
	u32 i;

	if (capng_get_caps_process())
		return -EPERM;
	for (i = 0; i < ARRAY_SIZE(sandbox_caps); i++)
		if (capng_have_capability(CAPNG_PERMITTED, sandbox_caps[i].nr))
			capng_update(CAPNG_ADD, CAPNG_EFFECTIVE,
				     sandbox_caps[i].nr);
	return capng_apply(CAPNG_SELECT_CAPS) ? -EPERM : 0;
}
