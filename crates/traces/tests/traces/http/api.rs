//! The calls, one after another and concurrently.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Web;
use super::fuzz;
use crate::support::hash;

/// Creates a table `t` of 300 commits with results at some of them.
async fn filled(web: &Web) {
    web.post("/tables", json!({"table": "t"})).await.is(201);
    let commits: Vec<Value> = (0..300)
        .map(|at| json!({"hash": hash(at), "author": "ada", "time": at, "subject": "s"}))
        .collect();
    web.post("/tables/t/commits", json!({"commits": commits})).await.is(200);
    for at in [1, 5, 250, 260, 299] {
        let letter = if at > 255 { "b" } else { "a" };
        let results: Vec<Value> = (0..6)
            .flat_map(|test| {
                let params =
                    json!({"name": format!("t{test}"), "os": if test % 2 == 0 {"x"} else {"y"}});
                [
                    json!({"params": params, "content": format!("{letter}{test}")}),
                    json!({"params": params, "value": at as f64 / 2.0, "options": {"unit": "ms"}}),
                ]
            })
            .collect();
        let put = json!({"commit": hash(at), "time": 10, "results": results});
        let stored = web.post("/tables/t/results", put).await.is(200);
        assert_eq!(stored["entries"], 12);
    }
}

#[tokio::test]
async fn everything_that_is_stored_can_be_read() {
    let web = Web::new();
    filled(&web).await;
    assert_eq!(web.get("/tables").await.is(200)["tables"][0]["settings"]["tile"], 256);
    assert_eq!(web.get("/tables/t").await.is(200)["head"]["index"], 299);
    let listed = web.get("/tables/t/commits?n=3").await.is(200);
    assert_eq!(listed["commits"][2]["hash"], hash(299));
    let grid = web.get("/tables/t/query?q=os%3Dx&n=3").await.is(200);
    assert_eq!(grid["traces"].as_array().unwrap().len(), 3);
    assert_eq!(grid["columns"][0]["index"], 250);
    assert_eq!(grid["traces"][0]["id"], ",name=t0,os=x,");
    let cells = &grid["traces"][0]["cells"];
    assert_ne!(cells[0], cells[1]);
    assert_eq!(cells[1], cells[2]);
    let numbers =
        web.get("/tables/t/query?kind=numbers&first=@0&last=@5&q=name%3Dt1").await.is(200);
    assert_eq!(numbers["traces"][0]["cells"], json!([null, 0.5, null, null, null, 2.5]));
    let trace = web.get("/tables/t/trace?id=,name=t0,os=x,").await.is(200);
    assert_eq!(trace["digests"].as_array().unwrap().len(), 5);
    assert_eq!(trace["options"], json!({"unit": "ms"}));
    let params = web.get("/tables/t/params").await.is(200);
    assert_eq!(params["params"]["os"], json!(["x", "y"]));
    let diff = web.get("/tables/t/diff?from=@255&to=@299").await.is(200);
    assert_eq!((&diff["total"], &diff["same"]), (&json!(6), &json!(0)));
    let found = web.get("/tables/t/bisect?id=,name=t0,os=x,").await.is(200);
    assert_eq!((&found["good"], &found["bad"]), (&json!(250), &json!(260)));
    assert_eq!(found["suspects"].as_array().unwrap().len(), 10);
    let blame = web.get("/tables/t/blame?n=10").await.is(200);
    assert_eq!(blame["total"], 12);
    let tile = web.text("/tables/t/tiles/1").await;
    let lines: Vec<Value> = tile.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[7]["traces"], 6);
    assert_eq!(lines[7]["digests"].as_object().unwrap().len(), 6);
}

#[tokio::test]
async fn labels_filter_traces_and_stale_changes_are_rejected() {
    let web = Web::new();
    filled(&web).await;
    let trace = web.get("/tables/t/trace?id=,name=t0,os=x,").await.is(200);
    let digest = trace["digests"][4][1].clone();
    let change = json!({"test": "t0", "digest": digest, "label": "positive", "expected": "untriaged", "by": "ada"});
    web.post("/tables/t/labels", change.clone()).await.is(200);
    web.post("/tables/t/labels", change).await.is(409);
    let labels = web.get("/tables/t/labels?test=t0").await.is(200);
    assert_eq!(labels["labels"][digest.as_str().unwrap()]["label"], "positive");
    let count = async |label: &str| {
        let grid = web.get(&format!("/tables/t/query?label={label}")).await.is(200);
        grid["total"].as_u64().unwrap()
    };
    assert_eq!((count("positive").await, count("untriaged").await), (1, 5));
}

#[tokio::test]
async fn reports_of_every_format_are_accepted() {
    let web = Web::new();
    filled(&web).await;
    let junit = "<testsuite name='s'><testcase name='a' time='0.5'/><testcase name='b'><failure/></testcase></testsuite>";
    let page = "/tables/t/results?format=junit&commit=@2&param=os%3Dlinux";
    let stored = web.send("POST", page, "application/xml", junit.into()).await.is(200);
    assert_eq!(stored["entries"], 3);
    let grid = web.get("/tables/t/query?q=suite%3Ds&first=@2&last=@2").await.is(200);
    assert_eq!(grid["traces"][0]["params"], json!({"name": "a", "os": "linux", "suite": "s"}));
    assert_eq!(grid["names"].as_object().unwrap().len(), 2);
    let google = r#"{"context":{},"benchmarks":[{"name":"BM","real_time":2.5,"time_unit":"us"}]}"#;
    let page = "/tables/t/results?format=google-benchmark&commit=@2&time=5";
    let stored = web.send("POST", page, "application/json", google.into()).await.is(200);
    assert_eq!(stored["entries"], 1);
    let criterion = r#"{"benchmarks":[{"benchmark":{"group_id":"g","function_id":null,"value_str":null,
        "full_id":"g"},"estimates":{"mean":{"point_estimate":1},"median":{"point_estimate":2}}}]}"#;
    let page = "/tables/t/results?format=criterion&commit=@2";
    assert_eq!(
        web.send("POST", page, "application/json", criterion.into()).await.is(200)["entries"],
        2
    );
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_their_status_and_store_nothing() {
    let web = Web::new();
    let served = &web.served;
    filled(&web).await;
    let before = served.client().table("t").unwrap();
    let before = before.read_rows(stele_bigtable_client::Query::all()).collect().await.unwrap();
    let long = "x".repeat(5 << 10);
    let good = json!({"params": {"name": "t"}, "value": 1});
    let result = |wrong: Value| json!({"commit": hash(0), "results": [good, wrong]});
    for (status, body) in [
        (400, result(json!({"params": {"name": long}, "value": 1}))),
        (400, result(json!({"params": {long.clone(): "v"}, "value": 1}))),
        (400, result(json!({"params": {}, "value": 1}))),
        (400, result(json!({"params": {"name": "a"}, "digest": "not hex"}))),
        (400, result(json!({"params": {"name": "a"}, "digest": "92eb"}))),
        (400, result(json!({"params": {"name": "a"}}))),
        (400, result(json!({"params": {"name": " "}, "value": 1}))),
        (400, result(good.clone())),
        (400, json!({"results": [good]})),
        (400, json!({"commit": "HEAD", "results": [good]})),
        (400, json!({"commit": "@x", "results": [good]})),
        (422, json!({"commit": "@300", "results": [good]})),
        (422, json!({"commit": "fedcba9876", "results": [good]})),
        (400, json!({"commit": hash(0), "results": [good], "more": 1})),
        (400, json!([])),
    ] {
        let answer = web.post("/tables/t/results", body).await;
        let body = answer.is(status);
        assert!(body["error"].as_str().unwrap().len() > 10, "{body}");
    }
    for (status, page) in [
        (404, "/tables/none/query"),
        (400, "/tables/a%2Fb/query"),
        (400, "/tables/t/query?q=a"),
        (400, "/tables/t/query?q=a%3D~("),
        (400, "/tables/t/query?n=0"),
        (400, "/tables/t/query?n=x"),
        (400, "/tables/t/query?kind=x"),
        (400, "/tables/t/query?nn=1"),
        (400, "/tables/t/query?n=1&n=2"),
        (400, "/tables/t/query?first=@1&n=2"),
        (400, "/tables/t/query?first=@5&last=@1"),
        (422, "/tables/t/query?last=@300"),
        (400, "/tables/t/query?q=%ZZ"),
        (400, "/tables/t/trace"),
        (400, "/tables/t/trace?id=name"),
        (404, "/tables/t/trace?id=,name=other,"),
        (400, "/tables/t/tiles/x"),
        (400, "/tables/t/tiles/4294967295"),
        (400, "/tables/t/labels?test=t0&digest=5"),
        (404, "/nothing"),
        (404, "/tables/t/nothing"),
    ] {
        web.get(page).await.is(status);
    }
    web.send("DELETE", "/tables/t", "", String::new()).await.is(405);
    // Any web page can make a browser send this.
    web.send("POST", "/tables/t/results", "text/plain", "{}".into()).await.is(400);
    web.send("POST", "/tables", "application/json", "{".into()).await.is(400);
    web.post("/tables", json!({"table": "a b"})).await.is(400);
    web.post("/tables", json!({"table": "t", "tile": 10})).await.is(409);
    web.post("/tables", json!({"table": "u", "tile": 0})).await.is(400);
    let after = served.client().table("t").unwrap();
    let after = after.read_rows(stele_bigtable_client::Query::all()).collect().await.unwrap();
    assert_eq!(before, after);
    assert_eq!(served.client().list_tables().await.unwrap(), ["t"]);
}

#[tokio::test]
async fn a_giant_upload_is_rejected_without_being_stored() {
    let web = Web::new();
    filled(&web).await;
    web.giant("/tables/t/results", 300 << 20).await.is(413);
}

#[tokio::test]
async fn slow_uploads_do_not_delay_other_requests() {
    let web = Arc::new(Web::new());
    filled(&web).await;
    let (stopped, mut uploads) = tokio::sync::mpsc::unbounded_channel();
    let mut slow = tokio::task::JoinSet::new();
    for page in ["/tables/t/results", "/tables/t/commits"].repeat(8) {
        let (web, stopped) = (web.clone(), stopped.clone());
        slow.spawn(async move { web.slow(page, stopped).await });
    }
    let beside_them = async {
        for _ in 0..16 {
            uploads.recv().await.unwrap();
        }
        assert_eq!(web.get("/tables/t/query").await.is(200)["total"], 6);
        assert_eq!(web.get("/tables/t/blame?n=10").await.is(200)["total"], 12);
        let put = json!({"commit": hash(7), "results": [{"params": {"name": "t"}, "value": 1}]});
        web.post("/tables/t/results", put).await.is(200);
    };
    // Much less than the time after which a stalled body is abandoned.
    tokio::time::timeout(Duration::from_secs(25), beside_them).await.unwrap();
    slow.abort_all();
}

/// The methods of each route are those of the OpenAPI file; that each route is in the
/// file is tested beside the routes.
#[tokio::test]
async fn every_method_is_described() {
    let web = Web::new();
    filled(&web).await;
    let document = web.raw("GET", "/traces/openapi.json", "", String::new().into()).await.is(200);
    for (path, described) in document["paths"].as_object().unwrap() {
        let page = path.replace("{table}", "t").replace("{tile}", "0");
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let status = web.send(method, &page, "", String::new()).await.status;
            let described = described.get(method.to_lowercase()).is_some();
            assert_ne!(status, 404, "{method} {page}");
            assert_eq!(status != 405, described, "{method} {page}: {status}");
        }
    }
}

#[tokio::test]
async fn all_responses_are_documented() {
    let web = Web::new();
    filled(&web).await;
    fuzz::run(&web, 400).await;
}

#[tokio::test]
async fn the_page_and_its_scripts_are_served() {
    let web = Web::new();
    for (page, expected) in [
        ("/traces", "<!doctype html>"),
        ("/traces/app.js", "import"),
        ("/traces/style.css", ":root"),
        ("/traces/openapi.json", "openapi"),
    ] {
        let answer = web.raw("GET", page, "", String::new().into()).await;
        assert_eq!(answer.status, 200, "{page}");
        assert!(answer.body.contains(expected), "{page}");
    }
    // All scripts that one of the scripts imports.
    let mut scripts = vec!["app.js".to_string()];
    let mut at = 0;
    while let Some(script) = scripts.get(at).cloned() {
        let answer = web.raw("GET", &format!("/traces/{script}"), "", String::new().into()).await;
        assert_eq!(answer.status, 200, "{script}");
        for (_, rest) in answer.body.match_indices("from \"./").map(|it| answer.body.split_at(it.0))
        {
            let name = rest["from \"./".len()..].split('"').next().unwrap().to_string();
            if !scripts.contains(&name) {
                scripts.push(name);
            }
        }
        at += 1;
    }
    assert!(at > 5, "{scripts:?}");
    assert_eq!(web.raw("GET", "/traces/none.js", "", String::new().into()).await.status, 404);
    assert_eq!(web.raw("GET", "/traces/", "", String::new().into()).await.status, 308);
}
