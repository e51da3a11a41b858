// SPDX-License-Identifier: Apache-2.0
/*
 * machine.c - the part that reports machine, date and command of a run
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/gpu/gpu.h"

/* The first line of a file, or of the output of a command. */
static void first_line(FILE *f, int (*end)(FILE *), char *to, int size)
{
	*to = '\0';
	if (!f)
		return;
	if (!fgets(to, size, f))
		*to = '\0';
	to[strcspn(to, "\n")] = '\0';
	end(f);
}

static const char *nvidia_smi(const char *what, char *to, int size)
{
	char command[320];

	if (!gpu_is_real())
		return strcpy(to, "not a GPU");
	snprintf(command, sizeof(command),
		 "nvidia-smi --query-gpu=%s --format=csv,noheader 2>/dev/null",
		 what);
	first_line(popen(command, "r"), pclose, to, size);
	return *to ? to : "nvidia-smi does not say";
}

void gpu_machine(void)
{
	const char *command = getenv("KVMM_GPU_COMMAND");
	char text[256] = "";
	u64 bytes, all;
	struct gpu g;
	time_t now = time(NULL);
	int version = 0;

	gpu_open(&g);
	GPU_DO(g.cu->DeviceGetName(text, sizeof(text), g.dev));
	gpu_fact(g.sms, "SMs", text, "machine.gpu");
	gpu_fact(g.arch / 10.0, "version", "compute capability",
		 "machine.capability");
	gpu_mem_info(&g, &bytes, &all);
	gpu_fact(all / 1e9, "GB", "all of its memory", "machine.memory");
	gpu_fact(bytes / 1e9, "GB", "free at the start", "machine.free");
	gpu_fact(g.l2 / 1e6, "MB", "L2", "machine.l2");
	GPU_DO(g.cu->DriverGetVersion(&version));
	gpu_fact(version / 1000.0, "version",
		 nvidia_smi("driver_version", text, sizeof(text)),
		 "machine.driver");
	gpu_fact(0, "words", nvidia_smi("persistence_mode,clocks.max.sm,clocks.max.mem,pcie.link.gen.max,pcie.link.width.max,power.limit,ecc.mode.current",
					text, sizeof(text)),
		 "machine.settings");
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", gmtime(&now));
	gpu_fact((double)now, "s", text, "machine.date");
	gpu_fact(0, "words", command ? command : "unknown", "machine.command");
}
