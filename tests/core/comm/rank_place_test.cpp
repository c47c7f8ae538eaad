// What each launcher tells a rank, as it was seen in real environments, and what half-set variables are answered with.
#include "core/comm/rank_place.h"

#include <gtest/gtest.h>

#include <map>

#include "core/base/error.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using Variables = std::map<std::string, std::string>;
using test::message_of;

RankPlace place_of(const Variables& variables) {
  return place_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string mistake_in(const Variables& variables) {
  return message_of<UserError>([&] { place_of(variables); });
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

void expect_ranks(const RankPlace& place, int rank, int world, int local_rank, int local_world) {
  EXPECT_EQ(place.rank, rank);
  EXPECT_EQ(place.world, world);
  EXPECT_EQ(place.local_rank, local_rank);
  EXPECT_EQ(place.local_world, local_world);
}

const Variables kOurs = {{"OMNILOOM_RANK", "1"},
                         {"OMNILOOM_WORLD_SIZE", "4"},
                         {"OMNILOOM_LOCAL_RANK", "1"},
                         {"OMNILOOM_LOCAL_WORLD_SIZE", "4"},
                         {"OMNILOOM_ADDRESS", "127.0.0.1"},
                         {"OMNILOOM_PORT", "40001"}};

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node7"},
                             {"MASTER_PORT", "43649"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_RUN_ID", "job-17"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const Variables kSlurm = {{"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "3"},
                          {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_STEP_NODELIST", "node[01-03,7]"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "4711"}};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_MCA_ess_base_jobid", "1234567"}};

const Variables kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};

TEST(RankPlace, NoLauncherIsAlone) {
  const RankPlace place = place_of({{"PATH", "/bin"}, {"MASTER_PORT", "29500"}, {"RANK", ""}});
  expect_ranks(place, 0, 1, 0, 1);
  EXPECT_EQ(place.launcher, "alone");
  EXPECT_EQ(place.port, 0);
}

TEST(RankPlace, OurLauncher) {
  const RankPlace place = place_of(kOurs);
  expect_ranks(place, 1, 4, 1, 4);
  EXPECT_EQ(place.launcher, "omniloom");
  EXPECT_EQ(place.address, "127.0.0.1");
  EXPECT_EQ(place.port, 40001);
  EXPECT_FALSE(place.store_elsewhere);
}

TEST(RankPlace, OurLauncherSetsAllOrNothing) {
  EXPECT_EQ(mistake_in(without(kOurs, "OMNILOOM_PORT")),
            "OMNILOOM_RANK=1 without OMNILOOM_PORT: set both or none of them");
  EXPECT_EQ(mistake_in(without(kOurs, "OMNILOOM_RANK")),
            "OMNILOOM_WORLD_SIZE=4 without OMNILOOM_RANK: set both or none of them");
  EXPECT_EQ(mistake_in(without(kOurs, "OMNILOOM_LOCAL_WORLD_SIZE")),
            "OMNILOOM_RANK=1 without OMNILOOM_LOCAL_WORLD_SIZE: set both or none of them");
  EXPECT_EQ(mistake_in(with(kOurs, {{"OMNILOOM_RANK", "4"}})),
            "OMNILOOM_RANK=4 with OMNILOOM_WORLD_SIZE=4: expected a rank from 0 to 3");
}

TEST(RankPlace, TorchrunKeepsTheStoreAtItsAgent) {
  const RankPlace place = place_of(kTorchrun);
  expect_ranks(place, 5, 8, 1, 4);
  EXPECT_EQ(place.launcher, "torchrun");
  EXPECT_EQ(place.address, "node7");
  EXPECT_EQ(place.port, 43649);
  EXPECT_TRUE(place.store_elsewhere);
  EXPECT_EQ(place.store_prefix, "omniloom/job-17/2");  // keys of an earlier attempt are still in that store
  EXPECT_FALSE(place_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).store_elsewhere);
}

TEST(RankPlace, ThoseWhoSpeakTorchsLanguageWithoutAnAgent) {
  const RankPlace place =
      place_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "pod-0"}, {"MASTER_PORT", "1"}});
  expect_ranks(place, 1, 2, 0, 1);
  EXPECT_FALSE(place.store_elsewhere);
  EXPECT_EQ(place.store_prefix, "omniloom");
  EXPECT_EQ(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).port, 0);
}

TEST(RankPlace, HalfSetOrWrongVariablesOfTorchrun) {
  EXPECT_EQ(mistake_in({{"WORLD_SIZE", "4"}}), "WORLD_SIZE=4 without RANK: set both or none of them");
  EXPECT_EQ(mistake_in({{"RANK", "0"}}), "RANK=0 without WORLD_SIZE: set both or none of them");
  EXPECT_EQ(mistake_in(without(kTorchrun, "MASTER_ADDR")), "RANK=5 without MASTER_ADDR: set both or none of them");
  EXPECT_EQ(mistake_in(without(kTorchrun, "LOCAL_RANK")),
            "LOCAL_WORLD_SIZE=4 without LOCAL_RANK: set both or none of them");
  EXPECT_EQ(mistake_in(with(kTorchrun, {{"MASTER_PORT", "http"}})),
            "MASTER_PORT='http': expected a whole number from 1 to 65535");
  EXPECT_EQ(mistake_in(with(kTorchrun, {{"MASTER_PORT", "70000"}})),
            "MASTER_PORT='70000': expected a whole number from 1 to 65535");
  EXPECT_EQ(mistake_in(with(kTorchrun, {{"RANK", "8"}})), "RANK=8 with WORLD_SIZE=8: expected a rank from 0 to 7");
  EXPECT_EQ(mistake_in(with(kTorchrun, {{"RANK", "-1"}})), "RANK='-1': expected a whole number from 0 to 1048576");
  EXPECT_EQ(mistake_in(with(kTorchrun, {{"WORLD_SIZE", "8x"}})),
            "WORLD_SIZE='8x': expected a whole number from 1 to 1048576");
  EXPECT_EQ(mistake_in(with(kTorchrun, {{"LOCAL_RANK", "4"}})),
            "LOCAL_RANK=4 with LOCAL_WORLD_SIZE=4: expected a rank from 0 to 3");
  EXPECT_EQ(mistake_in(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})),
            "LOCAL_WORLD_SIZE=9: more ranks on this machine than the 8 of the run");
}

TEST(RankPlace, SlurmStep) {
  const RankPlace place = place_of(kSlurm);
  expect_ranks(place, 6, 7, 0, 1);
  EXPECT_EQ(place.launcher, "slurm");
  EXPECT_EQ(place.address, "node01");
  EXPECT_FALSE(place.store_elsewhere);
  const RankPlace other =
      place_of(with(kSlurm, {{"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "0"}}));
  expect_ranks(other, 1, 7, 1, 2);
  EXPECT_EQ(other.port, place.port);
  EXPECT_GE(place.port, 15000);
  EXPECT_LT(place.port, 32768);  // where the system's own ports begin
  EXPECT_NE(place_of(with(kSlurm, {{"SLURM_JOB_ID", "4712"}})).port, place.port);
  EXPECT_NE(place_of(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).port, place.port);
}

TEST(RankPlace, SlurmFollowsMasterVariablesAndTheStepsOwnCounts) {
  const RankPlace place = place_of(with(kSlurm, {{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29511"}}));
  EXPECT_EQ(place.address, "10.0.0.7");
  EXPECT_EQ(place.port, 29511);
  // A step of fewer tasks than its job.
  expect_ranks(place_of({{"SLURM_PROCID", "1"},
                         {"SLURM_STEP_ID", "3"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "0"},
                         {"SLURM_TASKS_PER_NODE", "8"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2"},
                         {"SLURM_JOB_ID", "1"}}),
               1, 2, 1, 2);
  // Of one machine: its name need not lead back to it.
  EXPECT_EQ(place_of({{"SLURM_PROCID", "0"},
                      {"SLURM_STEPID", "0"},
                      {"SLURM_NPROCS", "2"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NTASKS_PER_NODE", "2"},
                      {"SLURM_NODELIST", "node1"},
                      {"SLURM_JOBID", "1"}})
                .address,
            "127.0.0.1");
}

TEST(RankPlace, SlurmHostLists) {
  const std::map<std::string, std::string> first = {{"node7", "node7"},
                                                    {"b5,node[01-03]", "b5"},
                                                    {"node[01-03,7],b5", "node01"},
                                                    {"gnode[10,20,25]", "gnode10"},
                                                    {"rack[1-2]n[003-4]x,q", "rack1n003x"},
                                                    {"my-host,b", "my-host"}};
  for (const auto& [list, host] : first) {
    EXPECT_EQ(place_of(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})).address, host) << list;
  }
  EXPECT_EQ(place_of(with(without(kSlurm, "SLURM_STEP_NODELIST"), {{"SLURM_JOB_NODELIST", "x[3-4]"}})).address, "x3");
  for (const std::string list : {"node[01-03", "node[]", "node[,2]", ",b"}) {
    EXPECT_EQ(mistake_in(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})),
              "SLURM_STEP_NODELIST='" + list + "': expected a list of machines such as node[01-03,7]");
  }
}

TEST(RankPlace, MistakesInSlurm) {
  EXPECT_EQ(mistake_in(without(kSlurm, "SLURM_LOCALID")),
            "SLURM_PROCID=6 without SLURM_LOCALID: set both or none of them");
  EXPECT_EQ(mistake_in(without(kSlurm, "SLURM_NTASKS")),
            "SLURM_PROCID=6 without SLURM_STEP_NUM_TASKS: set both or none of them");
  EXPECT_EQ(mistake_in(with(kSlurm, {{"SLURM_PROCID", "7"}})),
            "SLURM_PROCID=7 with SLURM_NTASKS=7: expected a rank from 0 to 6");
  EXPECT_EQ(mistake_in(with(kSlurm, {{"SLURM_LOCALID", "1"}})),
            "SLURM_LOCALID=1 with SLURM_TASKS_PER_NODE=2(x3),1: expected a rank from 0 to 0");
  EXPECT_EQ(mistake_in(with(kSlurm, {{"SLURM_NODEID", "4"}})),
            "SLURM_TASKS_PER_NODE='2(x3),1': machine 4 (SLURM_NODEID) is not among its 4");
  EXPECT_EQ(mistake_in(with(kSlurm, {{"SLURM_TASKS_PER_NODE", "2(x3"}})),
            "SLURM_TASKS_PER_NODE='2(x3': expected tasks by machine such as 2(x3),1");
  EXPECT_EQ(mistake_in(with(kSlurm, {{"SLURM_TASKS_PER_NODE", "two"}})),
            "SLURM_TASKS_PER_NODE='two': expected a whole number from 1 to 1048576");
  EXPECT_EQ(mistake_in(without(kSlurm, "SLURM_STEP_NODELIST")),
            "srun runs 7 ranks on several machines, 1 of them here: set MASTER_ADDR to the machine of rank 0");
}

TEST(RankPlace, AloneInsideOfASlurmAllocation) {
  const Variables batch = without(without(kSlurm, "SLURM_STEP_ID"), "SLURM_STEP_NODELIST");
  EXPECT_EQ(place_of(batch).launcher, "alone");  // sbatch sets SLURM_PROCID=0
  EXPECT_EQ(place_of(without(kSlurm, "SLURM_PROCID")).launcher, "alone");
  for (const char* special : {"4294967290", "4294967291", "4294967292"}) {  // shell of salloc, batch, extern
    EXPECT_EQ(place_of(with(kSlurm, {{"SLURM_STEP_ID", special}})).launcher, "alone") << special;
  }
}

TEST(RankPlace, OpenMpi) {
  const RankPlace place = place_of(kOpenMpi);
  expect_ranks(place, 1, 2, 1, 2);
  EXPECT_EQ(place.launcher, "openmpi");
  EXPECT_EQ(place.address, "127.0.0.1");
  EXPECT_NE(place_of(with(kOpenMpi, {{"OMPI_MCA_ess_base_jobid", "1234568"}})).port, place.port);
  const Variables five = with(without(kOpenMpi, "OMPI_MCA_ess_base_jobid"), {{"PMIX_NAMESPACE", "prterun-vm-17@1"}});
  const Variables neighbour = with(five, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_EQ(place_of(five).port, place_of(neighbour).port);
  EXPECT_EQ(place_of(with(kOpenMpi, {{"MASTER_PORT", "4242"}})).port, 4242);
}

TEST(RankPlace, OpenMpiOnSeveralMachinesNeedsAnAddress) {
  const Variables far = with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(mistake_in(far),
            "mpirun runs 4 ranks on several machines, 2 of them here: set MASTER_ADDR to the machine of rank 0");
  EXPECT_EQ(place_of(with(far, {{"MASTER_ADDR", "head"}})).address, "head");
  EXPECT_EQ(mistake_in(without(kOpenMpi, "OMPI_COMM_WORLD_RANK")),
            "OMPI_COMM_WORLD_SIZE=2 without OMPI_COMM_WORLD_RANK: set both or none of them");
  EXPECT_EQ(mistake_in(without(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_RANK")),
            "OMPI_COMM_WORLD_RANK=1 without OMPI_COMM_WORLD_LOCAL_RANK: set both or none of them");
}

TEST(RankPlace, Mpich) {
  const RankPlace place = place_of(kMpich);
  expect_ranks(place, 1, 2, 1, 2);
  EXPECT_EQ(place.launcher, "mpich");
  EXPECT_EQ(place.port, 29500);
  EXPECT_EQ(place_of(with(kMpich, {{"MASTER_PORT", "4242"}})).port, 4242);
  EXPECT_EQ(mistake_in(without(kMpich, "PMI_SIZE")), "PMI_RANK=1 without PMI_SIZE: set both or none of them");
  EXPECT_EQ(mistake_in(without(kMpich, "MPI_LOCALRANKID")),
            "PMI_RANK=1 without MPI_LOCALRANKID: set both or none of them");
  EXPECT_EQ(mistake_in(with(kMpich, {{"PMI_SIZE", "3"}})),
            "mpiexec runs 3 ranks on several machines, 2 of them here: set MASTER_ADDR to the machine of rank 0");
}

TEST(RankPlace, TheInnermostLauncherWins) {
  Variables all = kSlurm;
  EXPECT_EQ(place_of(with(all, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}})).launcher, "slurm");  // srun --mpi=pmi2
  all.insert(kMpich.begin(), kMpich.end());
  EXPECT_EQ(place_of(all).launcher, "mpich");  // mpiexec, whose daemons srun has started
  all.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(place_of(all).launcher, "openmpi");
  all.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(place_of(all).launcher, "torchrun");
  all.insert(kOurs.begin(), kOurs.end());
  EXPECT_EQ(place_of(all).launcher, "omniloom");
}

TEST(RankPlace, AWorldSizeBesideAnotherLauncherMustAgree) {
  EXPECT_EQ(place_of(with(kSlurm, {{"WORLD_SIZE", "7"}})).launcher, "slurm");
  EXPECT_EQ(mistake_in(with(kSlurm, {{"WORLD_SIZE", "8"}})), "WORLD_SIZE=8 but slurm started 7 ranks");
}

}  // namespace
}  // namespace loom
