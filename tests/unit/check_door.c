// SPDX-License-Identifier: Apache-2.0
/*
 * check_door.c - a tenant's directory that is exchanged while it is made
 *
 * A user with write access to the parent of a --tenant directory can rename it
 * and put a link to another directory in its place, between any two calls of
 * the daemon, which is root.  Here the exchange happens inside the calls.
 * Whenever it happens, the other directory must not change, and hold must
 * remove nothing there at the end.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kvmm/hold/store.h"
#include "kvmm/ipc/daemon.h"

#define PATH	96

/* The call before or after which the directory is exchanged. */
enum moment { NEVER, MKDIR, BIND, FIRST_CHOWN, MOMENTS };

static char dir[64];		/* of the test */
static char path[PATH];		/* of the tenant */
static char moved[PATH], victim[PATH];
static enum moment when;
static struct store st;

static void exchange(enum moment now)
{
	if (now != when)
		return;
	when = NEVER;
	ck_assert_int_eq(rename(path, moved), 0);
	ck_assert_int_eq(symlink(victim, path), 0);
}

/* The next functions replace those of libc, also for the daemon's code. */
int mkdir(const char *name, mode_t mode)
{
	long err = syscall(SYS_mkdirat, AT_FDCWD, name, mode);

	if (!strcmp(name, path))
		exchange(MKDIR);
	return (int)err;
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	exchange(BIND);
	return (int)syscall(SYS_bind, fd, addr, len);
}

int lchown(const char *name, uid_t uid, gid_t gid)
{
	exchange(FIRST_CHOWN);
	return (int)syscall(SYS_fchownat, AT_FDCWD, name, uid, gid,
			    AT_SYMLINK_NOFOLLOW);
}

int fchownat(int fd, const char *name, uid_t uid, gid_t gid, int flags)
{
	exchange(FIRST_CHOWN);
	return (int)syscall(SYS_fchownat, fd, name, uid, gid, flags);
}

static const char *in(const char *where, const char *name)
{
	static char full[4][2 * PATH];
	static u32 n;
	char *p = full[n++ % 4];

	snprintf(p, sizeof(full[0]), "%s/%s", where, name);
	return p;
}

/* A file and a socket of another user, with the names of the daemon's sockets. */
static void victim_make(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(mkdir(victim, 0700), 0);
	strcpy(sun.sun_path, in(victim, "view.sock"));
	ck_assert_int_eq((int)syscall(SYS_bind, fd, &sun, sizeof(sun)), 0);
	close(fd);
	fd = open(in(victim, "attach.sock"), O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void victim_as_it_was(void)
{
	const uid_t me = geteuid();
	struct stat s;

	ck_assert_int_eq(lstat(victim, &s), 0);
	ck_assert_uint_eq(s.st_mode & 07777, 0700);
	ck_assert_uint_eq(s.st_uid, me);
	ck_assert_int_eq(lstat(in(victim, "attach.sock"), &s), 0);
	ck_assert(S_ISREG(s.st_mode) && s.st_uid == me &&
		  (s.st_mode & 0777) == 0600);
	ck_assert_int_eq(lstat(in(victim, "view.sock"), &s), 0);
	ck_assert(S_ISSOCK(s.st_mode) && s.st_uid == me);
}

/* Move the daemon's deposited records to hold's store. */
static void to_hold(int sock)
{
	while (store_receive(&st, sock) > 0)
		;
}

static struct daemon *daemon_make(int sock)
{
	static char spec[2 * PATH];
	struct daemon *d = daemon_alloc();

	ck_assert_ptr_nonnull(d);
	d->deposit.fd = sock;
	snprintf(d->sockets.attach_addr.sun_path, sizeof(d->sockets.attach_addr.sun_path),
		 "%s/a.sock", dir);
	/* Another user owns the sockets only if we may give them away. */
	snprintf(spec, sizeof(spec), "t,dir=%s,owner=%u,mode=0660", path,
		 geteuid() ? geteuid() : 65534);
	d->setup.opt.tenants.s[0] = spec;
	d->setup.opt.tenants.nr = 1;
	ck_assert_int_eq(door_options(&d->sockets), 0);
	ck_assert_int_eq(door_paths(&d->sockets), 0);
	return d;
}

static void lock_put(int sock)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = HOLD_LOCK,
	};
	int fd = open(in(dir, "a.sock.lock"), O_CREAT | O_RDWR | O_CLOEXEC,
		      0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sock_send(sock, &r, sizeof(r), &fd, 1), 0);
	close(fd);
}

static void sockets_in(const char *where)
{
	static const char * const name[] = { "attach.sock", "view.sock" };
	struct stat s;
	u32 i;

	ck_assert_int_eq(lstat(where, &s), 0);
	ck_assert_uint_eq(s.st_mode & 07777, 0755);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(lstat(in(where, name[i]), &s), 0);
		ck_assert(S_ISSOCK(s.st_mode));
		ck_assert_uint_eq(s.st_mode & 0777, 0660);
		ck_assert_uint_eq(s.st_uid, geteuid() ? geteuid() : 65534);
	}
}

static void names(void)
{
	snprintf(dir, sizeof(dir), "%s/door.XXXXXX", getenv("TMPDIR") ?
		 getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/t", dir);
	snprintf(moved, sizeof(moved), "%s/moved", dir);
	snprintf(victim, sizeof(victim), "%s/victim", dir);
}

static void clean(void)
{
	unlink(in(victim, "attach.sock"));
	unlink(in(victim, "view.sock"));
	ck_assert_int_eq(rmdir(victim), 0);
	ck_assert(!unlink(path) || !rmdir(path));
	rmdir(moved);
	unlink(in(dir, "a.sock.lock"));
	ck_assert_int_eq(rmdir(dir), 0);
}

static void daemon_free(struct daemon *d)
{
	struct door *door = d->sockets.doors;

	if (door->attach.fd >= 0)
		close(door->attach.fd);
	if (door->view.fd >= 0)
		close(door->view.fd);
	door_exit(&d->sockets);
	free(d);
}

START_TEST(test_exchanged)
{
	const enum moment at = (enum moment)_i;
	struct daemon *d;
	int sv[2], err;

	umask(0077);
	names();
	victim_make();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    sv), 0);
	d = daemon_make(sv[0]);
	lock_put(sv[0]);
	when = at;
	err = door_make(&d->sockets);
	/* The opened directory is the daemon's, whatever replaced it. */
	ck_assert_int_eq(err, at == MKDIR ? -ENOTDIR : 0);
	victim_as_it_was();
	if (!err)
		sockets_in(at == NEVER ? path : moved);
	/* kvmm could not remove its sockets: hold does, and removes no others. */
	to_hold(sv[1]);
	if (!err && at == NEVER) {
		ck_assert_int_eq(rename(path, moved), 0);
		ck_assert_int_eq(symlink(victim, path), 0);
	}
	store_unlink(&st);
	victim_as_it_was();
	ck_assert_int_ne(access(in(moved, "attach.sock"), F_OK), 0);
	ck_assert_int_ne(access(in(moved, "view.sock"), F_OK), 0);
	store_clear(&st);
	daemon_free(d);
	close(sv[0]);
	close(sv[1]);
	clean();
}
END_TEST

/* The next daemon takes over a socket that is still there, and makes one that is not. */
START_TEST(test_kept)
{
	struct daemon *d, *next;
	struct kept *k;
	int sv[2], kept;

	umask(0077);
	names();
	victim_make();
	when = NEVER;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    sv), 0);
	d = daemon_make(sv[0]);
	ck_assert_int_eq(door_make(&d->sockets), 0);
	to_hold(sv[1]);
	k = store_find(&st, HOLD_LISTEN, 3);
	ck_assert_ptr_nonnull(k);
	next = daemon_make(sv[0]);
	kept = dup(k->fd);
	next->deposit.listen[3] = kept;
	ck_assert_int_eq(door_make(&next->sockets), 0);
	ck_assert_int_eq(next->sockets.doors[0].attach.fd, kept);
	/* The view socket was not kept: the daemon made a new one. */
	ck_assert_int_ge(next->sockets.doors[0].view.fd, 0);
	ck_assert(unlink(in(path, "attach.sock")) == 0 &&
		  unlink(in(path, "view.sock")) == 0);
	store_clear(&st);
	daemon_free(d);
	daemon_free(next);
	close(sv[0]);
	close(sv[1]);
	clean();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("door");
	TCase *tc = tcase_create("door");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 40);
	tcase_add_loop_test(tc, test_exchanged, NEVER, MOMENTS);
	tcase_add_test(tc, test_kept);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
