// SPDX-License-Identifier: Apache-2.0
/*
 * it_adopt_refuse.c - what is not adopted, and who does not come back
 *
 * budget: 60 s
 *
 * An arena that is damaged, of another kvmm or another boot, or that killed who
 * adopted it, makes the start a cold one, with a line that says why.  Clients
 * that ask for an attachment that is not theirs get none, each told why; one
 * that does not come back is killed, and so are, at once, those that died
 * meanwhile; their memory is back.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvmm/ipc/keep.h"
#include "tests/integration/adopt_scene.h"
#include "tests/integration/wire.h"

#define OTHER_UID	65534

static char sock[RIG_PATH + 32];

static void start(const char *resume_ms, const char *fault)
{
	if (fault)
		setenv("KVMM_FAULT", fault, 1);
	adopt_world("on", resume_ms, "--socket-mode", "0666", NULL);
	unsetenv("KVMM_FAULT");
	/* For the client of another user. */
	chmod(adopt_rig.dir, 0711);
	snprintf(sock, sizeof(sock), "%s/attach.sock", adopt_rig.dir);
}

static void expect_serves(void)
{
	struct kvmm_attach_req req;
	struct wire w;

	wire_request(&req, "after");
	ck_assert_int_eq(wire_attach(&w, sock, &req), 0);
	ck_assert_int_eq(wire_call(&w, KVMM_OP_NOP, 0, NULL, 0, NULL, 0), 0);
	wire_close(&w);
	rig_walk(&adopt_rig);
}

/* ---- arenas ---- */

struct damage {
	const char	*file;
	s64		off;
	u8		mask;
	u32		len;
	const char	*says;
};

static const struct damage damages[] = {
	{ "kvmm-arena", 0, 0x10, 1, "of another kvmm, or for other sizes" },
	{ "kvmm-arena", 8, 0x01, 1, "of another kvmm, or for other sizes" },
	/* core_config.pool_bytes is the first of them. */
	{ "kvmm-arena", 35, 0x02, 1, "of another kvmm, or for other sizes" },
	{ "kvmm-arena", 16384, 0xff, 1 << 20, "cold start:" },
	{ "kvmm-keep", offsetof(struct keep, boot), 0x01, 1, "of another boot" },
	{ "kvmm-keep", offsetof(struct keep, layout), 0x01, 1,
	  "of another kvmm" },
	{ "kvmm-keep", offsetof(struct keep, ready), 0xff, 0,
	  "had not begun to serve" },
};

static void do_damage(void *arg)
{
	const struct damage *dm = arg;
	int fd = adopt_kept(dm->file);
	u8 *buf = calloc(1, dm->len + 1);
	u32 i;

	if (!dm->len) {
		ck_assert_int_eq(pwrite(fd, buf, 4 - 3, dm->off), 1);
	} else {
		ck_assert_int_eq(pread(fd, buf, dm->len, dm->off), dm->len);
		for (i = 0; i < dm->len; i++)
			buf[i] ^= dm->mask;
		ck_assert_int_eq(pwrite(fd, buf, dm->len, dm->off), dm->len);
	}
	free(buf);
	close(fd);
}

START_TEST(test_damaged)
{
	const struct damage *dm = &damages[_i];

	start("60000", NULL);
	expect_serves();
	adopt_kill_and(do_damage, (void *)dm);
	adopt_await_logged(dm->says, 0);
	ck_assert_uint_ge(adopt_logged("cold start:"), 1);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* What dies of every adoption is not adopted for ever. */
START_TEST(test_poison)
{
	start("60000", "adopt_die");
	expect_serves();
	ck_assert_int_eq(kill(adopt_daemon(0), SIGKILL), 0);
	adopt_await_logged("adopted before and led to nothing", 0);
	adopt_await_logged("kvmm: ready:", 1);
	/* The first death, and two that adopted. */
	ck_assert_uint_eq(adopt_logged("kvmm was ended by signal 9"), 3);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* ---- clients ---- */

static int ask(const struct kvmm_attach_req *req, struct kvmm_attach_rep *rep)
{
	struct wire w;
	int err = wire_attach(&w, sock, req);

	*rep = w.rep;
	wire_close(&w);
	return err;
}

static void resume_of(const struct wire *w, struct kvmm_attach_req *req)
{
	wire_request(req, "x");
	req->flags = KVMM_ATTACH_RESUME;
	req->features = KVMM_FEAT_RESUME;
	req->resume_epoch = w->rep.daemon_epoch;
	memcpy(req->resume_token, w->rep.token, sizeof(req->resume_token));
	req->resume_client = w->rep.client;
	req->resume_seen = w->number;
	req->resume_index = w->taken;
}

static void attach(struct wire *w)
{
	struct kvmm_attach_req req;

	wire_request(&req, "mine");
	req.features = KVMM_FEAT_RESUME;
	ck_assert_int_eq(wire_attach(w, sock, &req), 0);
	ck_assert_uint_eq(w->rep.features, KVMM_FEAT_RESUME);
	wire_extents(w, true);
	ck_assert_int_eq(wire_call(w, KVMM_OP_NOP, 0, NULL, 0, NULL, 0), 0);
}

/* Ask as another process, of user @uid.  Return: what it was told. */
static int ask_as(uid_t uid, const struct kvmm_attach_req *req)
{
	struct kvmm_attach_rep rep;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		/* The way there may be closed to that user. */
		strcpy(sock, "attach.sock");
		if (chdir(adopt_rig.dir) || (uid && setuid(uid)))
			_exit(255);
		_exit(-ask(req, &rep) & 0xff);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static void expect_ask(const struct kvmm_attach_req *req, int err,
		       const char *says)
{
	struct kvmm_attach_rep rep;
	int got = ask(req, &rep);

	ck_assert_msg(got == err, "%d, not %d: %s", got, err, rep.text);
	ck_assert_msg(strstr(rep.text, says), "says: %s", rep.text);
}

START_TEST(test_hostile)
{
	struct kvmm_attach_req good, bad;
	struct kvmm_attach_rep rep;
	struct wire w;

	start("60000", NULL);
	attach(&w);
	resume_of(&w, &good);
	expect_ask(&good, -EALREADY, "is attached");
	adopt_kill();

	bad = good;
	bad.resume_token[1] ^= 1;
	expect_ask(&bad, -ENOENT, "no such attachment");
	bad = good;
	bad.resume_client = 63;
	expect_ask(&bad, -ENOENT, "no such attachment");
	bad.resume_client = KVMM_NO_INDEX;
	expect_ask(&bad, -ENOENT, "no such attachment");
	bad = good;
	bad.resume_epoch--;
	expect_ask(&bad, -ESTALE, "another daemon");
	bad = good;
	bad.flags |= 2;
	expect_ask(&bad, -EINVAL, "newer than this kvmm");
	bad = good;
	bad.resv[0] = 1;
	expect_ask(&bad, -EINVAL, "newer than this kvmm");
	bad = good;
	bad.layout_hash ^= 1;
	expect_ask(&bad, -EPROTONOSUPPORT, "another uapi/kvmm.h");
	bad = good;
	bad.resume_seen += 5;
	expect_ask(&bad, -EPROTO, "never was");
	ck_assert_int_eq(ask_as(0, &good), -EPERM);
	if (!geteuid())
		ck_assert_int_eq(ask_as(OTHER_UID, &good), -ENOENT);
	else
		printf("  not root: no other user asks\n");

	ck_assert_int_eq(ask(&good, &rep), 0);
	ck_assert_uint_eq(rep.resumed, KVMM_RESUMED_WHOLE);
	ck_assert_uint_eq(rep.ring_index, w.taken);
	ck_assert_uint_eq(rep.committed, w.number);
	/* That connection is closed again: it hung up, and lives on. */
	adopt_await_logged("resumed", 0);
	expect_ask(&good, -ESTALE, "has ended");
	wire_close(&w);
	rig_walk(&adopt_rig);
	/* It has this process killed: the node ends before that. */
	rig_stop(&adopt_rig);
}
END_TEST

/* A client of its own process, which does nothing more. */
static pid_t client_fork(void)
{
	int ready[2];
	struct wire w;
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(ready), 0);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		attach(&w);
		if (!wire_seq(&w, 40, 1) || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void await_clients(s64 nr)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();

	while (rig_value(&adopt_rig, "status", "Clients") != nr) {
		ck_assert_msg(now_ms() < end, "clients are left:\n%s",
			      adopt_log());
		nap_ms(20);
	}
}

START_TEST(test_not_back)
{
	int status;
	pid_t pid;

	start("500", NULL);
	pid = client_fork();
	adopt_kill();
	ck_assert_uint_eq(adopt_logged("1 client, 1 sequence"), 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ck_assert_uint_eq(adopt_logged("did not come back in 500 ms"), 1);
	await_clients(0);
	ck_assert_int_eq(rig_value(&adopt_rig, "meminfo", "Quarantine"), 0);
	expect_serves();
	adopt_world_stop();
}
END_TEST

static void end_client(void *arg)
{
	const pid_t pid = *(const pid_t *)arg;

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

START_TEST(test_dead_meanwhile)
{
	pid_t pid;

	start("60000", NULL);
	pid = client_fork();
	adopt_kill_and(end_client, &pid);
	ck_assert_uint_eq(adopt_logged(": whole,"), 1);
	await_clients(0);
	expect_serves();
	adopt_world_stop();
}
END_TEST

/* ---- processes that outlive their DETACH ---- */

/* Attaches and detaches whenever it is told to. */
static pid_t ghost_fork(int *ask, int *told)
{
	int go[2], done[2];
	struct wire w;
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(done), 0);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		close(go[1]);
		while (read(go[0], &c, 1) == 1) {
			attach(&w);
			wire_call(&w, KVMM_OP_DETACH, 0, NULL, 0, NULL, 0);
			if (load_acquire(&w.dctl->state) !=
			    KVMM_CLIENT_DETACHED)
				_exit(1);
			wire_close(&w);
			if (write(done[1], "x", 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	close(go[0]);
	close(done[1]);
	*ask = go[1];
	*told = done[0];
	return pid;
}

/* Until it has detached, and its slot is free. */
static void ghost_comes(int ask, int told)
{
	char c;

	ck_assert_int_eq(write(ask, "x", 1), 1);
	ck_assert_int_eq(read(told, &c, 1), 1);
	await_clients(0);
}

/* Does hold keep a descriptor of the process? */
static bool hold_keeps(pid_t pid)
{
	char dir[64], path[400], want[32];
	bool found = false;
	struct dirent *e;
	DIR *d;

	snprintf(want, sizeof(want), "\nPid:\t%d\n", (int)pid);
	snprintf(dir, sizeof(dir), "/proc/%d/fdinfo", (int)adopt_rig.hold);
	d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	while (!found && (e = readdir(d))) {
		char *text;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		text = slurp(path);
		found = strstr(text, want);
		free(text);
	}
	closedir(d);
	return found;
}

/* Whatever the order in which hold has them, each is kept for the next one. */
START_TEST(test_ghosts)
{
	int ask[2], told[2], status;
	pid_t pid[2];
	u32 i;

	start("60000", NULL);
	pid[0] = ghost_fork(&ask[0], &told[0]);
	pid[1] = ghost_fork(&ask[1], &told[1]);
	ghost_comes(ask[0], told[0]);
	ghost_comes(ask[1], told[1]);
	/* Its record is put anew, so it is hold's last one now. */
	ghost_comes(ask[0], told[0]);
	adopt_kill();
	for (i = 0; i < 2; i++)
		ck_assert_msg(hold_keeps(pid[i]), "process %u is forgotten",
			      i);
	/* The second has a duplicate of what the first one waits for. */
	close(ask[1]);
	close(ask[0]);
	for (i = 0; i < 2; i++) {
		close(told[i]);
		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		ck_assert_int_eq(status, 0);
	}
	nap_ms(100);
	ck_assert(!hold_keeps(pid[0]) && !hold_keeps(pid[1]));
	adopt_world_stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adopt-refuse");
	TCase *a = tcase_create("arena"), *c = tcase_create("client");
	SRunner *sr;
	int failed;

	tcase_set_timeout(a, 300);
	tcase_add_loop_test(a, test_damaged, 0, ARRAY_SIZE(damages));
	tcase_add_test(a, test_poison);
	suite_add_tcase(s, a);
	tcase_set_timeout(c, 300);
	tcase_add_test(c, test_hostile);
	tcase_add_test(c, test_not_back);
	tcase_add_test(c, test_dead_meanwhile);
	tcase_add_test(c, test_ghosts);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
