// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_admin.c - requests on the admin socket, to the real shell
 *
 * An input is a few connections, each with one message and its descriptors: a
 * request of the list below with other bytes spliced in, or any bytes.  admin.c,
 * admin/set.c and the code for swap areas answer as in the daemon.  A swapd is
 * connected; the input chooses its answers, or that it gives none.
 *
 * Laws: an answer is `ok TEXT`, `error N TEXT` or `progress TEXT`; no message of
 * the log has two lines; no descriptor is left at the end.
 */
#include <fcntl.h>
#include <sys/socket.h>

/* For struct admin and its functions; its object is not linked then. */
#include <kvmm/clock.h>

#include "kvmm/ipc/admin/admin.c"

#include "tests/fuzz/inproc.h"
#include "tests/fuzz/shell.h"

#define ASKS	8u

static const char * const asks[] = {
	"swapon 0 0 0 /a", "swapon 1048576 3 1 /swap/file",
	"swapon 99999999999 32767 0 /b", "swapoff 100 0 0 /a",
	"swapoff 0 1 2 /swap/file", "set memory.max max a",
	"set memory.min 4096 a", "set memory.weight 100 a@0",
	"set memory.high 18446744073709551615 b", "resize 65536 gpu0",
	"resize 0 gpu0", "drop_caches", "drop_caches a",
	"evict 0 a", "evict 4096 a", "pin 0 a", "pin 65536 a", "unpin 0 a",
	"drain 1 node", "drain 0 node", "drain 1 client/0", "drain 1 tenant/0",
	"log nothing",
	"set memory.max max \\141", "set memory.low 1 a@0",
};

static struct {
	struct kvmm_daemon_ctl		ctl;
	struct kvmm_seq_status		seqs[INPROC_SEQS];
	struct kvmm_extent_status	extents[INPROC_EXTENTS];
	struct kvmm_table_page		tables[16];
	struct kvmm_event		events[16];
} seg;

static struct client client;
static int swapd = -1;		/* its end of the control socket */

/* Domains are found by their names in the files. */
static int source_call(void *arg, void (*fn)(struct core *core, void *fn_arg),
		       void *fn_arg)
{
	return mm_call(&((struct daemon *)arg)->mm, fn, fn_arg);
}

static void setup(void)
{
	struct proc_source src = {
		.call = source_call, .host = &inproc->setup.host.found,
		.arg = inproc, .backend = "fuzz",
		.socket = "/run/kvmm/attach.sock",
	};
	struct core_bind bind = {
		.ctl = &seg.ctl, .seqs = seg.seqs, .extents = seg.extents,
		.tables = seg.tables, .events = seg.events, .nr_events = 16,
	};
	u8 secret[CORE_SECRET_LEN] = { 0 };
	struct core_attach_info info;
	struct kvmm_attach_req req;

	shell_attach_req(&req, 0);
	FUZZ_LAW(!core_client_attach(inproc->setup.core, kv_now_ns(), 1, secret, &req,
				     &info), "%s", info.text);
	inproc->clients.by_id[0] = &client;
	core_client_bind(inproc->setup.core, 0, &bind);
	FUZZ_LAW(!swap_init(&inproc->swap, inproc->mm.epoll, &inproc->link.shm), "no swap");
	inproc->link.wanted = true;
	inproc->views.proc = proc_create(&src);
	inproc->operators.proc = inproc->views.proc;
	FUZZ_LAW(inproc->views.proc, "no files");
}

/* ---- answers ---- */

static void judge_answer(const char *text)
{
	char *end;

	if (!strncmp(text, "ok ", 3) || !strncmp(text, "progress ", 9))
		return;
	FUZZ_LAW(!strncmp(text, "error ", 6) &&
		 strtol(text + 6, &end, 10) > 0 && *end == ' ', "'%s'", text);
}

static void answers_read(int sock)
{
	char text[KV_ADMIN_TEXT + 1];
	ssize_t n;

	while ((n = recv(sock, text, sizeof(text) - 1, MSG_DONTWAIT)) > 0) {
		text[n] = '\0';
		judge_answer(text);
	}
}

/* ---- connections ---- */

static struct admin *admin_begin(int sock)
{
	struct admin *adm = admin_new(&inproc->operators.admins, sock, admin_on_sock,
				      &inproc->operators);

	FUZZ_LAW(adm && adm->sock.fn, "no memory");
	adm->rights = KV_RIGHT_all;
	adm->deadline = kv_now_ns() + ASK_MS * NSEC_PER_MSEC;
	return adm;
}

static size_t request_read(struct fuzz *f, char *buf, size_t len)
{
	const char *ask = asks[fuzz_u8(f) % ARRAY_SIZE(asks)];
	u8 how = fuzz_u8(f);
	size_t n = how < 224 ? strlen(ask) : 0, at, more;

	memcpy(buf, ask, n);
	if (how < 96)
		return n;
	at = n ? fuzz_u8(f) % n : 0;
	more = fuzz_u8(f);
	more = how >= 250 ? min(16 * more, len - at) : min(more, f->left);
	fuzz_bytes(f, buf + at, more);
	return max(n, at + more);
}

/* swapd answers for an area: in time or late, right or wrong. */
static void swapd_says(struct fuzz *f)
{
	struct swapd_answer a = {
		.magic = SWAPD_MAGIC, .op = SWAPD_AREA_ADD,
		.area = fuzz_u8(f) & 3, .cookie = fuzz_u8(f),
		.usable_off = SWAPD_RESERVED_BYTES,
		.usable_bytes = (u64)fuzz_u8(f) << 12,
	};

	if (fuzz_u8(f) & 1)
		a.op = SWAPD_AREA_DEL;
	if (fuzz_u8(f) & 1)
		a.status = -EIO;
	fuzz_scar(f, &a, sizeof(a));
	a.text[sizeof(a.text) - 1] = '\0';
	area_answer(&inproc->link, &a);
}

static void play(struct fuzz *f)
{
	static char buf[KV_ADMIN_REQ + 64];
	u8 b = fuzz_u8(f);
	struct admin *adm;
	size_t len;
	int sock[2];

	inproc_pair(SOCK_SEQPACKET, sock);
	adm = admin_begin(sock[0]);
	len = request_read(f, buf, sizeof(buf));
	inproc_send(sock[1], buf, len, b < 32 ? 0 : b < 200 ? 1 : b % 5);
	admin_on_sock(&inproc->operators, &adm->sock, EPOLLIN);
	if (b & 1)
		swapd_says(f);
	inproc_threads(0);
	inproc_turn();
	area_judge_all(&inproc->link);
	(void)area_timers(&inproc->link, kv_now_ns() +
			  (b & 2 ? 100 * NSEC_PER_SEC : 0));
	answers_read(sock[1]);
	if (b & 4 && adm->sock.fn)
		admin_on_sock(&inproc->operators, &adm->sock, EPOLLIN);
	(void)admin_timers(&inproc->operators, kv_now_ns());
	close(sock[1]);
	if (swapd >= 0)
		inproc_drain(swapd);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { .p = data, .left = min(size, (size_t)FUZZ_MAX) };
	u32 i, fds;
	int sock[2];
	u8 b;

	inproc_begin(setup);
	close(inproc_some_fd(0));
	fds = fuzz_count_fds(0);
	b = fuzz_u8(&f);
	if (b & 1) {
		inproc_pair(SOCK_SEQPACKET, sock);
		inproc->link.sock.fd = sock[0];
		swapd = sock[1];
		inproc->link.generation = 1;
		inproc->link.hello = true;
		inproc->link.up = b & 2;
	}
	for (i = 0; f.left && i < ASKS; i++)
		play(&f);
	inproc_check();
	admin_exit_all(&inproc->operators);
	area_exit_all(&inproc->link);
	watch_close(&inproc->loop, &inproc->link.sock);
	if (swapd >= 0)
		close(swapd);
	swapd = -1;
	FUZZ_LAW(fuzz_count_fds(0) == fds, "%u descriptors, not %u",
		 fuzz_count_fds(0), fds);
	return 0;
}
