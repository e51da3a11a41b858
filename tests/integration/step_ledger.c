// SPDX-License-Identifier: Apache-2.0
/*
 * step_ledger.c - check that all resources of a dead client are free again
 *
 * The daemon has handled a death when it counts as many ends as attaches, has
 * no block open, pinned or in quarantine, and has the same descriptors as
 * without clients.  The test waits for that; then the walkers must find no
 * fault.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/admin.h>

#include "tests/integration/step_ledger.h"

#define SOON_MS		10000
#define LOOK_US		300

static void ask(struct ledger *l, const char *req)
{
	int status, err;

	err = kv_view_ask(l->view, req, SOON_MS * time_scale(), &status,
			  &l->text);
	if (err || status)
		ck_abort_msg("%s: %s", req, err ? strerror(-err) :
			     seq_text(&l->text));
}

/* Value in the last answer; -1: the key is missing. */
static s64 value(struct ledger *l, const char *key)
{
	const size_t len = strlen(key);
	const char *line = seq_text(&l->text);

	for (; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, len) &&
		    (line[len] == ' ' || line[len] == ':'))
			return strtoll(line + len + 1, NULL, 10);
	}
	ck_abort_msg("no %s in the daemon's files", key);
	return -1;
}

s64 ledger_value(struct ledger *l, const char *file, const char *key)
{
	char req[64];

	snprintf(req, sizeof(req), "cat %s", file);
	ask(l, req);
	return value(l, key);
}

/* Descriptors of the daemon without extents, which stay for a while. */
static u32 count_fds(pid_t pid)
{
	char dir[64], path[340], to[64];
	struct dirent *e;
	ssize_t n;
	u32 nr = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)pid);
	d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[max(n, (ssize_t)0)] = '\0';
		nr += n > 0 && !strstr(to, "/memfd:kvmm-extent");
	}
	closedir(d);
	return nr;
}

/* A resource that dead clients still have; NULL: none. */
static const char *rest_of(struct ledger *l)
{
	static const char *const gone[] = {
		"nr_seqs", "nr_steps_open", "nr_blocks_open",
		"nr_blocks_quiescing", "nr_blocks_limbo", "nr_blocks_sealed",
	};
	u32 i;

	ask(l, "cat vmstat");
	if (value(l, "nr_clients") != l->others)
		return "nr_clients";
	if (value(l, "client_attach") != value(l, "client_death") +
	    value(l, "client_detach") + l->others)
		return "client_attach";
	if (value(l, "nr_blocks_quarantine"))
		return "nr_blocks_quarantine";
	/* Clients that stay have some of these themselves. */
	for (i = 0; !l->others && i < ARRAY_SIZE(gone); i++)
		if (value(l, gone[i]))
			return gone[i];
	return count_fds(l->kvmm) == l->fds ? NULL : "descriptors";
}

static void still_there(struct ledger *l, const char *what, const char *rest)
{
	char *fds = census_fds(l->kvmm);

	if (l->others && l->other_says && *l->other_says)
		ck_abort_msg("%s: the witness: %s", what, l->other_says);
	ask(l, "cat vmstat");
	ck_abort_msg("%s: %s is not as before (%u descriptors were); now:\n%s%s",
		     what, rest, l->fds, seq_text(&l->text), fds);
}

void ledger_settle(struct ledger *l, const char *what)
{
	const u64 give_up = now_ms() + SOON_MS * time_scale();
	const char *rest;

	while ((rest = rest_of(l))) {
		if (now_ms() > give_up)
			still_there(l, what, rest);
		usleep(LOOK_US);
	}
	ask(l, "check");
	if (strcmp(seq_text(&l->text), "ok\n"))
		ck_abort_msg("%s: walkers: %s", what, seq_text(&l->text));
}

static bool all_free(struct ledger *l)
{
	ask(l, "cat meminfo");
	return value(l, "GpuFree") == value(l, "GpuTotal") &&
	       value(l, "HostFree") == value(l, "HostTotal") &&
	       !value(l, "PrefixCached") && !value(l, "Sealed") &&
	       !value(l, "Indexed");
}

void ledger_drop(struct ledger *l)
{
	const u64 give_up = now_ms() + SOON_MS * time_scale();
	static struct kv_admin a;

	a.path = l->admin;
	a.timeout_ms = SOON_MS * time_scale();
	a.fd = -1;
	if (kv_admin_ask(&a, "drop_caches") || a.status)
		ck_abort_msg("drop_caches: %s", a.text);
	while (!l->others && !all_free(l)) {
		if (now_ms() > give_up)
			ck_abort_msg("not all is free:\n%s",
				     seq_text(&l->text));
		usleep(LOOK_US);
	}
}

void ledger_open(struct ledger *l, struct rig *r)
{
	memset(l, 0, sizeof(*l));
	l->rig = r;
	seq_init(&l->text, KV_VIEW_TEXT_MAX);
	ck_assert_int_eq(kv_view_path(r->dir, l->view), 0);
	ck_assert_int_eq(kv_admin_path(l->view, l->admin, sizeof(l->admin)), 0);
	l->kvmm = rig_daemon(r);
	ck_assert_int_gt(l->kvmm, 0);
	/* The daemon has a socket to swapd. */
	while (!ledger_value(l, "swapstat", "pid"))
		usleep(LOOK_US);
	ledger_drop(l);
	/* The daemon closes the connections of these requests a moment later. */
	nap_ms(50 * time_scale());
	l->fds_alone = count_fds(l->kvmm);
	l->fds = l->fds_alone;
	census_take(&l->was, r);
	ledger_settle(l, "nobody came");
}

void ledger_admit(struct ledger *l, u32 others)
{
	const u64 give_up = now_ms() + SOON_MS * time_scale();

	while (ledger_value(l, "vmstat", "nr_clients") != others) {
		ck_assert_uint_lt(now_ms(), give_up);
		usleep(LOOK_US);
	}
	l->others = others;
	nap_ms(50 * time_scale());
	l->fds = others ? count_fds(l->kvmm) : l->fds_alone;
}

void ledger_close(struct ledger *l)
{
	const u64 give_up = now_ms() + SOON_MS * time_scale();
	struct census now;
	char why[512];

	nap_ms(50 * time_scale());
	ledger_settle(l, "all are gone");
	ledger_drop(l);
	ledger_settle(l, "the cache was dropped");
	ck_assert_int_eq(rig_daemon(l->rig), l->kvmm);
	for (census_take(&now, l->rig);
	     census_grew(&l->was, &now, why, sizeof(why));
	     census_take(&now, l->rig)) {
		if (now_ms() > give_up)
			ck_abort_msg("left behind: %s", why);
		nap_ms(20);
	}
	seq_free(&l->text);
}
