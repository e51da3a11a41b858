// SPDX-License-Identifier: Apache-2.0
/*
 * check_rights.c - users, groups and verbs at the daemon's own sockets
 *
 * The table of verbs is held against Documentation/security.md.  Members are users
 * of whom no process exists: rights_of() takes their groups as numbers.
 */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/verbs.h>

#include "kvmm/ipc/daemon.h"
#include "tests/unit/page.h"

#define OWN	1000u
#define PROC	2000u
#define USER	3000u
#define READ	41u
#define ADMIN	42u

static const struct rights both = {
	.own_uid = OWN, .has_proc = true, .proc_uid = PROC,
	.read = { .valid = true, .gid = READ },
	.admin = { .valid = true, .gid = ADMIN },
};
static const struct rights none = { .own_uid = OWN };

/* A user, its groups, and its rights where both groups exist and where none does. */
static const struct {
	const char	*what;
	uid_t		uid;
	gid_t		gids[3];
	u32		rights;
	u32		without;
} users[] = {
	{ "root", 0, { 0 }, KV_RIGHT_all, KV_RIGHT_all },
	{ "the daemon's own user", OWN, { OWN }, KV_RIGHT_all, KV_RIGHT_all },
	{ "kvmm-proc", PROC, { PROC }, KV_RIGHT_others, 0 },
	{ "kvmm-proc in the group", PROC, { PROC, ADMIN }, KV_RIGHT_others, 0 },
	{ "a user", USER, { USER, 7 }, 0, 0 },
	{ "a reader", USER, { USER, 7, READ }, KV_RIGHT_read, 0 },
	{ "a reader by its own group", USER, { READ }, KV_RIGHT_read, 0 },
	{ "an admin", USER, { USER, ADMIN }, KV_RIGHT_read | KV_RIGHT_change, 0 },
	{ "both", USER, { READ, ADMIN }, KV_RIGHT_read | KV_RIGHT_change, 0 },
};

START_TEST(test_users)
{
	const u32 nr = ARRAY_SIZE(users[0].gids);

	ck_assert_msg(rights_of(&both, users[_i].uid, users[_i].gids, nr) ==
		      users[_i].rights, "%s", users[_i].what);
	ck_assert_msg(rights_of(&none, users[_i].uid, users[_i].gids, nr) ==
		      users[_i].without, "%s without groups", users[_i].what);
	/* Groups that could not be read give nothing. */
	if (users[_i].uid == USER)
		ck_assert_uint_eq(rights_of(&both, USER, NULL, 0), 0);
}
END_TEST

/* A reader changes nothing and delays no client; all requests for operators change. */
START_TEST(test_verbs)
{
	u32 i;

	for (i = 0; i < kv_nr_verbs; i++) {
		const struct kv_verb *v = &kv_verbs[i];

		ck_assert_ptr_eq(kv_verb_find(v->socket, v->name), v);
		if (v->socket == KV_SOCKET_admin)
			ck_assert_uint_eq(v->right, KV_RIGHT_change);
		if (v->right == KV_RIGHT_read)
			ck_assert_msg(strstr(" cat ls stat wait ", v->name) != NULL,
				      "%s", v->name);
	}
	ck_assert_str_eq(kv_verb_find(KV_SOCKET_admin, "set a b c")->name, "set");
	ck_assert_ptr_null(kv_verb_find(KV_SOCKET_view, "swapon 0 0 0 /a"));
	ck_assert_ptr_null(kv_verb_find(KV_SOCKET_admin, "cat meminfo"));
	ck_assert_ptr_null(kv_verb_find(KV_SOCKET_admin, "setx 1"));
	ck_assert_ptr_null(kv_verb_find(KV_SOCKET_admin, "se"));
	ck_assert_ptr_null(kv_verb_find(KV_SOCKET_view, ""));
}
END_TEST

START_TEST(test_documented)
{
	static const char * const sockets[] = { "view", "admin" };
	static const char * const rights[] = {
#define x(name, text) #name,
		KV_RIGHTS(x)
#undef x
	};
	char *page = page_read("security.md"), row[160];
	u32 i;

	for (i = 0; i < kv_nr_verbs; i++) {
		const struct kv_verb *v = &kv_verbs[i];

		snprintf(row, sizeof(row), "| %s.sock `%s` | %s | %s |\n",
			 sockets[v->socket], v->name, rights[__builtin_ctz(v->right)], v->text);
		ck_assert_row(page, "security.md", row);
	}
#define x(name, text)							\
	ck_assert_row(page, "security.md", "| " #name " | " text " |\n");
	KV_RIGHTS(x)
#undef x
	ck_assert_uint_eq(page_count(page, "| view.sock `") +
			  page_count(page, "| admin.sock `"), kv_nr_verbs);
	free(page);
}
END_TEST

static bool has(const gid_t *gids, u32 nr, gid_t gid)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (gids[i] == gid)
			return true;
	return false;
}

/* The groups of this process, all of them; of another user than it has, none. */
START_TEST(test_groups_of_a_process)
{
	gid_t own[256], *gids = NULL;
	int i, nr_own = getgroups(ARRAY_SIZE(own), own);
	u32 nr = process_groups(getpid(), geteuid(), &gids);

	ck_assert_int_ge(nr_own, 0);
	ck_assert(has(gids, nr, getegid()));
	for (i = 0; i < nr_own; i++)
		ck_assert(has(gids, nr, own[i]));
	free(gids);
	ck_assert_uint_eq(process_groups(getpid(), geteuid() + 1, &gids), 0);
	ck_assert_ptr_null(gids);
	ck_assert_uint_eq(process_groups(INT32_MAX, 0, &gids), 0);
}
END_TEST

/* A group that the machine has not is a line of the log, and no failure. */
START_TEST(test_options)
{
	struct daemon *d = daemon_alloc();
	struct rights *r = &d->sockets.rights;

	d->setup.opt.read_group = "no-such-group-here";
	d->setup.opt.admin_group = "4711";
	ck_assert_int_eq(rights_options(&d->sockets), 0);
	ck_assert(!r->read.valid && r->admin.valid);
	ck_assert_uint_eq(r->admin.gid, 4711);
	d->setup.opt.read_group = "root";
	d->setup.opt.admin_group = "none";
	ck_assert_int_eq(rights_options(&d->sockets), 0);
	ck_assert(r->read.valid && !r->admin.valid);
	ck_assert_uint_eq(r->read.gid, 0);
	free(d);
}
END_TEST

/* Each answer names the groups that there are. */
START_TEST(test_answers)
{
	struct daemon *d = daemon_alloc();
	struct sockets *s = &d->sockets;
	char text[256];

	strcpy(s->view_addr.sun_path, "/run/kvmm/view.sock");
	ck_assert_str_eq(rights_refused(s, KV_RIGHT_read, text, sizeof(text)),
			 "a daemon runs at /run/kvmm; you may not ask it: root and the daemon's own user may");
	s->rights.read = (struct rights_group){ .valid = true, .name = "kvmm" };
	ck_assert_str_eq(rights_refused(s, KV_RIGHT_read, text, sizeof(text)),
			 "a daemon runs at /run/kvmm; you may not ask it: join group kvmm");
	ck_assert_str_eq(rights_refused(s, KV_RIGHT_change, text, sizeof(text)),
			 "a daemon runs at /run/kvmm; you may not change it: root and the daemon's own user may");
	s->rights.admin = (struct rights_group){ .valid = true, .name = "kvmm-admin" };
	ck_assert_str_eq(rights_refused(s, KV_RIGHT_read, text, sizeof(text)),
			 "a daemon runs at /run/kvmm; you may not ask it: join group kvmm (reading) or kvmm-admin (changes)");
	ck_assert_str_eq(rights_refused(s, KV_RIGHT_change, text, sizeof(text)),
			 "a daemon runs at /run/kvmm; you may not change it: join group kvmm-admin");
	rights_refused(s, KV_RIGHT_read, text, 20);
	ck_assert_str_eq(text, "a daemon runs at /r");
	free(d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rights");
	TCase *tc = tcase_create("rights");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, test_users, 0, ARRAY_SIZE(users));
	tcase_add_test(tc, test_verbs);
	tcase_add_test(tc, test_documented);
	tcase_add_test(tc, test_groups_of_a_process);
	tcase_add_test(tc, test_options);
	tcase_add_test(tc, test_answers);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
