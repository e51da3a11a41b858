// SPDX-License-Identifier: Apache-2.0
/*
 * check_admin.c - the admin socket against strangers, garbage and hang-ups
 *
 * The tests run a real kvmm without kvmm-hold: it refuses every swap area.
 * After each test it has closed all descriptors that it was sent, and the
 * walkers find nothing wrong.
 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/admin.h>
#include <kvmm/rundir.h>
#include <kvmm/view.h>

#include "tests/tmp.h"
#include "tests/unit/ipc_daemon.h"

#define SMALL	"--pool-size 2M --extent-size 64K"

static struct ipcd d;
static char path[108];
static int fds_before;

static void setup_with(const char *args)
{
	ipcd_start(&d, "kvmm", args, NULL);
	snprintf(path, sizeof(path), "%s/" KV_ADMIN_SOCKET, d.dir);
	ipcd_check(&d);
	fds_before = ipcd_nr_fds(d.pid);
}

static void setup(void)
{
	tmp_open_to_others();
	setup_with(SMALL " --host-size 1M");
}

static int admin_connect(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(sun.sun_path, path);
	if (!connect(s, (struct sockaddr *)&sun, sizeof(sun)))
		return s;
	close(s);
	return -1;
}

static void admin_send(int sock, const void *text, size_t len, int nr_fds)
{
	union {
		char		buf[CMSG_SPACE(3 * sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct iovec iov = { .iov_base = (void *)text, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fd[3], i;

	for (i = 0; i < 3; i++)
		fd[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (nr_fds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE((u32)nr_fds * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN((u32)nr_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fd,
		       (u32)nr_fds * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(sock, &msg, MSG_NOSIGNAL), (ssize_t)len);
	for (i = 0; i < 3; i++)
		close(fd[i]);
}

/* The answer; "" at the end of the connection. */
static const char *admin_answer(int sock)
{
	static char buf[KV_ADMIN_TEXT];
	struct pollfd p = { .fd = sock, .events = POLLIN };
	ssize_t n;

	ck_assert_int_eq(poll(&p, 1, ipcd_ms(3000)), 1);
	n = recv(sock, buf, sizeof(buf) - 1, 0);
	buf[max(n, (ssize_t)0)] = '\0';
	return buf;
}

/* Is a new connection answered?  Then kvmm has seen those queued before it. */
static bool queue_is_empty(void)
{
	int s = admin_connect();
	bool answered;

	ck_assert_int_ge(s, 0);
	answered = send(s, "\n", 1, MSG_NOSIGNAL) == 1 && *admin_answer(s);
	close(s);
	return answered;
}

/* Once the queue is empty, the number of descriptors only falls. */
static void teardown(void)
{
	int tries;

	for (tries = 0; !queue_is_empty() && tries < 200; tries++)
		usleep(10000);
	for (tries = 0; ipcd_nr_fds(d.pid) > fds_before && tries < 200; tries++)
		usleep(10000);
	ck_assert_int_le(ipcd_nr_fds(d.pid), fds_before);
	ipcd_check(&d);
	ipcd_stop(&d);
}

static const struct {
	const char *text;
	int nr_fds;
	const char *answer;
} bad[] = {
	{ "\n", 0, "error 22 a request of control" },
	{ "swapon", 1, "error 22 no such request" },
	{ "reboot now", 3, "error 22 no such request" },
	{ "swapon 1 2", 1, "error 22 swapon: want" },
	{ "swapon 1 2 3 ", 1, "error 22 swapon: want" },
	{ "swapon x 0 0 /a", 1, "error 22 swapon: want" },
	{ "swapon 0 -1 0 /a", 1, "error 22 swapon: want" },
	{ "swapon 0 99999 0 /a", 1, "error 22 swapon: want" },
	{ "swapon 0 0 0 /a", 0, "error 9 swapon: want the file" },
	{ "swapon 0 0 0 /a", 1, "error 95 /a: swap areas need swapd" },
	{ "set", 0, "error 22 no such request" },
	{ "set memory.max", 0, "error 22 set: want" },
	{ "set memory.max x a", 0, "error 22 set: want" },
	{ "set memory.max -5 a", 0, "error 22 set: want" },
	{ "set memory.max +5 a", 0, "error 22 set: want" },
	{ "set memory.max 99999999999999999999 a", 0, "error 22 set: want" },
	{ "set memory.mid 1 a", 1, "error 22 domain/a/memory.mid: cannot be set: give one of memory.min" },
	{ "set memory.max 1 nobody", 1, "error 2 nobody: no such domain" },
	{ "resize x gpu0", 0, "error 22 resize: want" },
	{ "resize 1", 0, "error 22 resize: want" },
	{ "resize 1 gpu1", 0, "error 2 pool/gpu1: no such pool: see kvctl ls pool" },
	{ "resize 1 gpu0", 0, "error 22 pool/gpu0: give at least" },
	{ "resize 1 gpu00", 0, "error 2 pool/gpu00: no such pool: see kvctl ls pool" },
	{ "tune x swappiness", 0, "error 22 tune: want" },
	{ "tune 1", 0, "error 22 tune: want" },
	{ "tune 1 pool_bytes", 1, "error 1 sys/vm/pool_bytes: cannot be set" },
	{ "tune 201 swappiness", 0, "error 22 sys/vm/swappiness: out of bounds: 0 to 200" },
	{ "tune 1 overcommit", 0, "error 22 sys/vm/overcommit: out of bounds: 0 to 2, and not 1" },
	{ "tune 0 overcommit_ratio", 0, "error 22 sys/vm/overcommit_ratio: out of bounds: 1 to 100" },
	{ "tune 7 swappiness", 0, "ok sys/vm/swappiness: is set to 7" },
	{ "trace x", 0, "error 22 trace: want" },
	{ "trace 1x", 0, "error 22 trace: want" },
	{ "trace 2 grant", 0, "error 22 events/grant/enable: out of bounds" },
	{ "trace -1", 0, "error 22 events/enable: out of bounds" },
	{ "trace 1 grants", 1, "error 2 events/grants: no such event" },
	{ "trace 1 grant", 0, "ok events/grant/enable: is set to 1" },
	{ "trace 0", 1, "ok events/enable: is set to 0" },
	{ "drop_caches nobody", 0, "error 2 nobody: no such domain" },
	{ "drop_caches", 1, "ok 0 blocks dropped" },
	{ "drop_cachesx", 0, "error 22 no such request" },
	{ "swapoff 1 2", 0, "error 22 swapoff: want" },
	{ "swapoff 1 2 3 /a", 1, "error 22 /a: is no swap area" },
	{ "swapoff 1 2 3 /a\nkvmm: error: b", 1, "error 22 a request of control" },
	{ "swapon 0 0 0 /a\x1b[2J", 1, "error 22 a request of control" },
};

START_TEST(test_bad_requests)
{
	int s = admin_connect();

	ck_assert_int_ge(s, 0);
	admin_send(s, bad[_i].text, strlen(bad[_i].text), bad[_i].nr_fds);
	ck_assert_msg(!strncmp(admin_answer(s), bad[_i].answer,
			       strlen(bad[_i].answer)), "'%s': '%s'",
		      bad[_i].text, admin_answer(s));
	ck_assert_str_eq(admin_answer(s), "");
	close(s);
}
END_TEST

/* Requests that kvmm-proc makes on the view socket for other users. */
static const struct {
	const char *req;
	int status;
	const char *text;
} asked[] = {
	{ "as 0 cat pool/gpu0/size", 0, "2097152\n" },
	{ "as 12345 cat pool/gpu0/size", ENOENT, "pool/gpu0/size: no such" },
	{ "as 12345 stat pool/gpu0/size", ENOENT, "pool/gpu0/size: no such" },
	{ "as 12345 stat clients", 0, "100444\n" },
	{ "as 12345 check", EPERM, "check: root and" },
	{ "as 12345 as 0 cat pool/gpu0/size", EINVAL, "want one line" },
	{ "as 12345:1 stat clients", 0, "100444\n" },
	{ "as 12345: ls", EINVAL, "as: want UID" },
	{ "as 12345:-1 ls", EINVAL, "as: want UID" },
	{ "as 12345:99999999999 ls", EINVAL, "as: want UID" },
	{ "as -1 ls", EINVAL, "as: want UID" },
	{ "as 4294967295 ls", EINVAL, "as: want UID" },
	{ "as 12345", EINVAL, "as: want UID" },
	{ "as 12345 ", EINVAL, "want one line" },
	{ "as 12345 set pool/gpu0/size 1M", EPERM, "set: root and" },
	{ "set pool/gpu0/size", EINVAL, "set: want PATH VALUE" },
	{ "set pool/gpu0/size gpu0 1M", EINVAL, "set: want PATH VALUE" },
	{ "set domain/a/memory.max gpu0 1M", ENOENT, "a: no such domain" },
	{ "set domain/a/memory.max host0 1M", EINVAL, "set: want PATH VALUE" },
	{ "set pool/gpu0/size x", EINVAL, "pool/gpu0/size: the value is none" },
	{ "set pool/gpu0/size 1", EINVAL, "pool/gpu0: give at least" },
	{ "set pool/gpu0/size max", EINVAL, "pool/gpu0/size: the value is" },
	{ "set pool/gpu0/size 1\x1b[2J", EINVAL, "want one line" },
	{ "set meminfo 1", ENOENT, "meminfo: cannot be set" },
	{ "set domain/a\\040b/memory.max 1", ENOENT, "a\\040b: no such domain" },
	{ "set sys/vm/swappiness 5K", EINVAL, "sys/vm/swappiness: the value" },
	{ "set sys/vm/ 5", ENOENT, "sys/vm/: cannot be set" },
	{ "as 12345 set sys/vm/swappiness 5", EPERM, "set: root and" },
	{ "cat sys/vm/swappiness", 0, "100\n" },
	{ "set sys/vm/swappiness 5", 0, "sys/vm/swappiness: is set to 5" },
	{ "cat sys/vm/swappiness", 0, "5\n" },
	{ "cat pool/gpu0/size", 0, "2097152\n" },
	{ "as 0 set /pool/gpu0/size 1M", 0, "pool/gpu0: size is set to 1024 kB" },
	{ "cat pool/gpu0/size", 0, "1048576\n" },
};

START_TEST(test_asked_for_others)
{
	struct seq_file text;
	char view[108];
	int status;
	u32 i;

	snprintf(view, sizeof(view), "%s/" KV_VIEW_SOCKET, d.dir);
	seq_init(&text, 65536);
	for (i = 0; i < ARRAY_SIZE(asked); i++) {
		ck_assert_int_eq(kv_view_ask(view, asked[i].req, 20000, &status,
					     &text), 0);
		ck_assert_msg(status == asked[i].status &&
			      !strncmp(seq_text(&text), asked[i].text,
				       strlen(asked[i].text)), "'%s': %d '%s'",
			      asked[i].req, status, seq_text(&text));
	}
	seq_free(&text);
}
END_TEST

/* Domain names that clients chose so that they look like other names. */
static const char * const hostile[] = {
	"it", " it", "it@0", "x\nkvmm: error: y", "\x1b[2J",
};

static const struct {
	const char *req;
	const char *file;
	const char *text;
} aimed[] = {
	{ "set domain/\\040it/memory.max 1M", "domain/\\040it/memory.max", "gpu0 1048576\n" },
	{ "set domain/it\\1000/memory.max 1M", "domain/it\\1000/memory.max", "gpu0 1048576\n" },
	{ "set domain/x\\012kvmm:\\040error:\\040y/memory.max 1M", "domain/\\033[2J/memory.max", "gpu0 max\n" },
	{ "set domain/\\033[2J/memory.max 1M", "domain/\\033[2J/memory.max", "gpu0 1048576\n" },
	{ "set domain/it@0/memory.max 2M", "domain/it/memory.max", "gpu0 max\n" },
};

START_TEST(test_aimed)
{
	struct rawc client[ARRAY_SIZE(hostile)] = { 0 };
	struct kvmm_attach_req req;
	struct seq_file text;
	char ask[512], view[108];
	int status;
	u32 i;

	setup();
	for (i = 0; i < ARRAY_SIZE(hostile); i++) {
		rawc_request(&req);
		snprintf(req.domain, sizeof(req.domain), "%s", hostile[i]);
		ck_assert_int_eq(rawc_attach(&client[i], &d, &req), 0);
	}
	snprintf(view, sizeof(view), "%s/" KV_VIEW_SOCKET, d.dir);
	seq_init(&text, 65536);
	for (i = 0; i < ARRAY_SIZE(aimed); i++) {
		ck_assert_int_eq(kv_view_ask(view, aimed[i].req, 20000, &status,
					     &text), 0);
		ck_assert_ptr_null(strchr(seq_text(&text), '\x1b'));
		snprintf(ask, sizeof(ask), "cat %s", aimed[i].file);
		ck_assert_int_eq(kv_view_ask(view, ask, 20000, &status, &text),
				 0);
		ck_assert_msg(!strcmp(seq_text(&text), aimed[i].text),
			      "'%s': '%s'", aimed[i].req, seq_text(&text));
	}
	ck_assert_int_eq(kv_view_ask(view, "cat domain/it/memory.max", 20000,
				     &status, &text), 0);
	ck_assert_str_eq(seq_text(&text), "gpu0 max\n");
	/* A limit of a pool that the domain is not in. */
	ck_assert_int_eq(kv_view_ask(view, "set domain/it/memory.max gpu1 1M", 20000,
				     &status, &text), 0);
	ck_assert_int_eq(status, EINVAL);
	ck_assert_ptr_nonnull(strstr(seq_text(&text),
				     "domain/it/memory.max: the domain is not in gpu1: "));
	/* Such names do not forge a line of the log either. */
	ck_assert(ipcd_logged(&d, "x\\012kvmm:\\040error:\\040y: memory.max is set"));
	ck_assert(!ipcd_logged(&d, "kvmm: error: y"));
	ck_assert(!ipcd_logged(&d, "\x1b"));
	seq_free(&text);
	for (i = 0; i < ARRAY_SIZE(hostile); i++)
		rawc_close(&client[i]);
	ipcd_check(&d);
	ipcd_stop(&d);
}
END_TEST

/* Requests that are too long, have too many descriptors, or are binary. */
START_TEST(test_garbage)
{
	static char junk[KV_ADMIN_REQ + 4096];
	int s, i;

	for (i = 0; i < (int)sizeof(junk); i++)
		junk[i] = (char)(i * 31 + 7);
	s = admin_connect();
	admin_send(s, junk, sizeof(junk), 3);
	ck_assert(!strncmp(admin_answer(s), "error 22", 8));
	close(s);
	s = admin_connect();
	memcpy(junk, "swapon 0 0 0 /", 14);
	memset(junk + 14, 'x', sizeof(junk) - 14);
	admin_send(s, junk, sizeof(junk), 1);
	ck_assert(!strncmp(admin_answer(s), "error 22", 8));
	close(s);
	s = admin_connect();
	admin_send(s, junk, 4000, 3);
	ck_assert(!strncmp(admin_answer(s), "error", 5));
	close(s);
}
END_TEST

/* Connections that send nothing, that hang up, and that are too many. */
START_TEST(test_mute)
{
	int s[40], i;

	for (i = 0; i < 40; i++)
		s[i] = admin_connect();
	/* Connections beyond the limit are closed at once. */
	ck_assert_str_eq(admin_answer(s[39]), "");
	ipcd_check(&d);
	for (i = 0; i < 40; i++)
		close(s[i]);
	for (i = 0; i < 200; i++) {
		s[0] = admin_connect();
		ck_assert_int_ge(s[0], 0);
		if (i % 2)
			admin_send(s[0], "swapon 0 0 0 /a", 15, 1);
		close(s[0]);
	}
}
END_TEST

/* Connect as another user.  Return: 0: cannot connect, 1: no answer. */
static int as_stranger(void)
{
	int s;

	if (setgid(65534) || setuid(65534))
		return 9;
	s = admin_connect();
	if (s < 0)
		return 0;
	if (send(s, "swapoff 1 0 0 /a", 16, MSG_NOSIGNAL) < 0)
		return 1;
	return *admin_answer(s) ? 2 : 1;
}

static int stranger(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(as_stranger());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(test_strangers)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	if (geteuid())
		return;
	ck_assert_int_eq(chmod(d.dir, 0755), 0);
	ck_assert_int_eq(stranger(), 0);
	/* Even if the mode were wrong, kvmm would refuse the user. */
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_int_eq(stranger(), 1);
	ck_assert(ipcd_logged(&d, "user 65534 is refused"));
}
END_TEST

START_TEST(test_without_host_pool)
{
	struct kv_admin a = { .path = path, .timeout_ms = 3000 };
	char text[64] = "swapon 0 0 0 /a";

	setup_with(SMALL);
	a.fd = open("/dev/null", O_RDWR);
	ck_assert_int_eq(kv_admin_ask(&a, text), 0);
	ck_assert_int_eq(a.status, EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(a.text, "--host-size"));
	close(a.fd);
	teardown();
}
END_TEST

START_TEST(test_nobody_there)
{
	struct kv_admin a = { .path = "/nowhere/admin.sock", .fd = -1 };
	char p[32];

	ck_assert_int_eq(kv_admin_ask(&a, "swapoff 1 0 0 /a"), -ENOENT);
	ck_assert_int_eq(kv_admin_path("/run/x/view.sock", p, sizeof(p)), 0);
	ck_assert_str_eq(p, "/run/x/admin.sock");
	ck_assert_int_eq(kv_admin_path("view.sock", p, sizeof(p)), 0);
	ck_assert_str_eq(p, "admin.sock");
	ck_assert_int_eq(kv_admin_path("/run/x/view.sock", p, 12),
			 -ENAMETOOLONG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin");
	TCase *tc = tcase_create("socket");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, ipcd_ms(20));
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_bad_requests, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_asked_for_others);
	tcase_add_test(tc, test_garbage);
	tcase_add_test(tc, test_mute);
	tcase_add_test(tc, test_strangers);
	suite_add_tcase(s, tc);
	tc = tcase_create("alone");
	tcase_add_test(tc, test_without_host_pool);
	tcase_add_test(tc, test_aimed);
	tcase_add_test(tc, test_nobody_there);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
