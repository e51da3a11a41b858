// SPDX-License-Identifier: Apache-2.0
/*
 * rights.c - the rights of users at the daemon's own sockets
 *
 * Root and the user that started the daemon may do everything.  Two groups get
 * rights by options: --read-group may read, --admin-group may change, too.  Their
 * members connect themselves, and the kernel tells their groups (SO_PEERGROUPS),
 * the supplementary ones too.  For a reader of the mounted files kvmm-proc names the
 * process, and the daemon looks up its groups.  kvmm-proc itself may only ask for other
 * users.
 *
 * Groups are looked up once, at start: later the daemon can open no file of /etc.
 *
 * Context: start-up, then the control thread.
 */
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/sandbox.h>

#include "kvmm/ipc/conn/conn.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS	59
#endif

#define GROUPS_FIRST	64u
#define GROUPS_MOST	65536u	/* NGROUPS_MAX of the kernel */

/* ---- start ---- */

static bool group_lookup(const char *name, gid_t *gid)
{
	const struct group *gr;
	u64 number;

	if (!kv_parse_uint(name, &number) && number < (gid_t)-1) {
		*gid = (gid_t)number;
		return true;
	}
	gr = getgrnam(name);
	if (gr)
		*gid = gr->gr_gid;
	return gr;
}

/* A daemon of a user's own is for that user: it has groups if they are named. */
static void group_find(const char *given, const char *dflt, struct rights_group *g)
{
	const char *name = given ? given : dflt;

	*g = (struct rights_group){ .named = given };
	if ((!given && geteuid()) || !strcmp(name, "none"))
		return;
	snprintf(g->name, sizeof(g->name), "%s", name);
	g->valid = group_lookup(name, &g->gid);
}

/**
 * rights_options() - read --read-group, --admin-group and --proc-user
 *
 * A group that does not exist is no failure; rights_tell() says it.
 *
 * Context: before the rights are given up.
 * Return: 0 or -EINVAL, which has been logged.
 */
int rights_options(struct sockets *s)
{
	const struct kvmm_options *o = &s->setup->opt;
	struct sandbox proc = { .user = o->proc_user, .dflt = "kvmm-proc" };
	struct rights *r = &s->rights;

	group_find(o->read_group, "kvmm", &r->read);
	group_find(o->admin_group, "kvmm-admin", &r->admin);
	if (geteuid())
		return 0;
	if (sandbox_find_user(&proc))
		return -EINVAL;
	r->has_proc = proc.change;
	r->proc_uid = proc.uid;
	return 0;
}

static void group_tell(const char *option, const struct rights_group *g,
		       const char *alone)
{
	if (g->valid || !g->name[0])
		return;
	if (g->named)
		pr_warn("--%s: there is no group %s, and only root and the daemon's own user may %s: groupadd --system %s, and start again",
			option, g->name, alone, g->name);
	else
		pr_info("there is no group %s, and only root and the daemon's own user may %s (--%s)", g->name,
			alone, option);
}

/* rights_tell() - a line for each group that this machine does not have */
void rights_tell(const struct sockets *s)
{
	group_tell("read-group", &s->rights.read, "read the files of all tenants");
	group_tell("admin-group", &s->rights.admin, "change values");
}

/* ---- rights of a user ---- */

static bool is_member(const struct rights_group *g, const gid_t *gids, u32 nr)
{
	u32 i;

	for (i = 0; g->valid && i < nr; i++)
		if (gids[i] == g->gid)
			return true;
	return false;
}

/**
 * rights_of() - the rights of a user in some groups
 * @gids: @nr groups, the primary one too
 *
 * Return: KV_RIGHT_* bits, 0: none.
 */
u32 rights_of(const struct rights *r, uid_t uid, const gid_t *gids, u32 nr)
{
	if (!uid || uid == r->own_uid)
		return KV_RIGHT_all;
	if (r->has_proc && uid == r->proc_uid)
		return KV_RIGHT_others;
	if (is_member(&r->admin, gids, nr))
		return KV_RIGHT_read | KV_RIGHT_change;
	return is_member(&r->read, gids, nr) ? KV_RIGHT_read : 0;
}

/* The groups of a peer, @own first.  Return: their number; 0: no memory. */
static u32 peer_groups(int sock, gid_t own, gid_t **gids)
{
	u32 room = GROUPS_FIRST;
	gid_t *list = NULL, *more;
	socklen_t len;

	for (; room <= GROUPS_MOST; room *= 2) {
		more = realloc(list, (room + 1) * sizeof(*list));
		if (!more)
			break;
		list = more;
		list[0] = own;
		*gids = list;
		len = room * (socklen_t)sizeof(*list);
		if (!getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, list + 1, &len))
			return 1 + (u32)(len / sizeof(*list));
		/* An older kernel tells the primary group alone. */
		if (errno != ERANGE)
			return 1;
	}
	free(list);
	*gids = NULL;
	return 0;
}

/**
 * rights_of_peer() - the rights of the user that connected
 * @uid: takes the user
 *
 * Return: KV_RIGHT_* bits, 0: none.
 */
u32 rights_of_peer(const struct sockets *s, int sock, uid_t *uid)
{
	gid_t *gids = NULL;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	u32 nr, rights;

	*uid = (uid_t)-1;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return 0;
	*uid = cred.uid;
	nr = peer_groups(sock, cred.gid, &gids);
	rights = rights_of(&s->rights, cred.uid, gids, nr);
	free(gids);
	return rights;
}

/**
 * rights_of_process() - the rights of a user that reads the mounted files
 * @pid: the process that reads, which waits meanwhile; 0: not known
 *
 * A process that is not @uid's gives no right.
 *
 * Return: KV_RIGHT_* bits; for other users than root and the daemon's own at most
 * those of the groups.
 */
u32 rights_of_process(const struct sockets *s, uid_t uid, pid_t pid)
{
	gid_t *gids = NULL;
	u32 nr = 0, rights;

	if (pid > 0 && (s->rights.read.valid || s->rights.admin.valid))
		nr = process_groups(pid, uid, &gids);
	rights = rights_of(&s->rights, uid, gids, nr);
	free(gids);
	return rights == KV_RIGHT_all ? rights : rights & ~(u32)KV_RIGHT_others;
}

/**
 * rights_refused() - the reason for a user without the right
 * @right: the one that is missing
 * @text:  @len bytes
 */
const char *rights_refused(const struct sockets *s, u32 right, char *text, size_t len)
{
	const struct rights *r = &s->rights;
	const char *own = s->view_addr.sun_path;
	const char *slash = strrchr(own, '/');
	int n;

	n = snprintf(text, len, "a daemon runs at %.*s; you may not %s it: ",
		     slash ? (int)(slash - own) : 1, slash ? own : ".",
		     right == KV_RIGHT_change ? "change" : "ask");
	if (n < 0 || (size_t)n >= len)
		return text;
	text += n;
	len -= (size_t)n;
	if (right == KV_RIGHT_read && r->read.valid && r->admin.valid)
		snprintf(text, len, "join group %s (reading) or %s (changes)",
			 r->read.name, r->admin.name);
	else if (right == KV_RIGHT_read && r->read.valid)
		snprintf(text, len, "join group %s", r->read.name);
	else if (right != KV_RIGHT_others && r->admin.valid)
		snprintf(text, len, "join group %s", r->admin.name);
	else
		snprintf(text, len, "root and the daemon's own user may");
	return text - n;
}
